package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"splash/internal/chat/ojson"
)

// promptVersion names the wording of judgments' prompts.
const promptVersion = "splash-direct-options-1"

type judgment struct {
	ID            string    `json:"id"`
	Options       []string  `json:"option_ids"`
	Probabilities []float64 `json:"probabilities"`
	Logits        []float32 `json:"option_logits"`
	InputTokens   int       `json:"input_tokens"`
	AnswerTokens  []int32   `json:"answer_token_ids"`
	PromptDigest  string    `json:"prompt_sha256"`
	PromptVersion string    `json:"prompt_version"`
	Model         struct {
		ID string `json:"id"`
	} `json:"model"`
	Readout string  `json:"readout"`
	Status  string  `json:"probability_status"`
	Forward float64 `json:"forward_seconds"`
	Total   float64 `json:"total_seconds"`
	Usage   struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	} `json:"usage"`
}

// judge answers POST /v1/judgments.
func (x *exchange) judge(body *ojson.Object) error {
	j, payload, err := x.judgmentRequest(body)
	if err != nil {
		return err
	}
	letters := make([]string, len(j.Options))
	for i := range letters {
		letters[i] = string(rune('A' + i))
	}
	sc, err := x.scorePrompt(payload, letters)
	if err != nil {
		return err
	}
	logits, took, err := x.score(sc)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(sc.text))
	j.Probabilities, j.Logits, j.AnswerTokens = softmax(logits), logits, sc.tokens
	j.InputTokens, j.Usage.Prompt, j.Usage.Total = len(sc.prompt), len(sc.prompt), len(sc.prompt)
	j.PromptDigest, j.PromptVersion = hex.EncodeToString(digest[:]), promptVersion
	j.Readout, j.Status = "next-token logits of the option letters", "uncalibrated"
	j.Forward, j.Total = took.Seconds(), time.Since(x.began).Seconds()
	x.json(http.StatusOK, j)
	return nil
}

// judgmentRequest reads a judgment, and what its prompt holds.
func (x *exchange) judgmentRequest(body *ojson.Object) (*judgment, *ojson.Object, error) {
	known := []string{"id", "state", "question", "options", "model", "timeout", "priority"}
	var unknown []string
	for name := range body.All() {
		if !slices.Contains(known, name) {
			unknown = append(unknown, shorten(name))
		}
	}
	if len(unknown) > 0 {
		return nil, nil, invalidf("unsupported fields: %s", shorten(strings.Join(unknown, ", ")))
	}
	f := &fields{o: body}
	j := &judgment{ID: f.string("id", "")}
	question := f.string("question", "")
	if j.ID == "" || question == "" {
		f.fault("id and question must be non-empty strings")
	}
	state, err := evidence(body.Value("state"))
	if err != nil {
		f.fault("state %v", err)
	}
	if f.has("model") {
		if err := x.s.checkName(f.string("model", "")); err != nil && f.err == nil {
			return nil, nil, err
		}
	}
	x.priority = f.priority()
	if d := f.timeout(); d > 0 {
		x.limit(d)
	}
	options := f.options(j)
	j.Model.ID = x.s.name()
	return j, ojson.NewObject("evidence", state, "criterion", question, "options", options), f.err
}

// options reads the options as the prompt lists them.
func (f *fields) options(j *judgment) []any {
	list, _ := f.o.Value("options").([]any)
	if len(list) < 2 || len(list) > 16 {
		f.fault("options must be 2 to 16 options")
		return nil
	}
	var options []any
	for i, v := range list {
		o, _ := v.(*ojson.Object)
		if o == nil {
			f.fault("each option must be an object")
			return nil
		}
		id, _ := o.Value("id").(string)
		description, ok := o.Value("description").(string)
		if id == "" || !ok || slices.Contains(j.Options, id) {
			f.fault("each option must have an id of its own and a description")
		}
		j.Options = append(j.Options, id)
		options = append(options, ojson.NewObject("letter", string(rune('A'+i)), "description", description))
	}
	return options
}
