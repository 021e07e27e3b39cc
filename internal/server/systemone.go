package server

import (
	"fmt"
	"math"
	"net/http"
	"strconv"

	"splash/internal/chat/ojson"
)

// mostScored bounds the tokens of all prompts of a System One request.
const mostScored = 1_000_000

// A systemOneFault is a field that cannot be honoured.
type systemOneFault struct {
	Where []any  `json:"loc"`
	What  string `json:"msg"`
	Kind  string `json:"type"`
}

func fieldFault(kind, what string, where ...any) *Error {
	e := &Error{Status: http.StatusUnprocessableEntity, Code: codeInvalid, Message: what}
	e.field = &systemOneFault{append([]any{"body"}, where...), what, kind}
	return e
}

// A question is one of a System One request.
type question struct {
	id, kind  string
	labels    []string
	legend    []any // of score: the levels, as they were given
	criterion any
	described []any // what the request says of each label
}

// systemOne answers POST /v1/systemone.
func (x *exchange) systemOne(body *ojson.Object) error {
	x.w.Header().Set("x-typesafe-request-id", "req_"+randomHex(12))
	questions, state, err := x.systemOneRequest(body)
	if err != nil {
		return err
	}
	prompts := make([]*scored, len(questions))
	total := 0
	for i, q := range questions {
		if len(q.labels) == 1 {
			continue // there is nothing to ask
		}
		if prompts[i], err = x.questionPrompt(q, state); err != nil {
			return err
		}
		if total += len(prompts[i].prompt); total > mostScored {
			return fieldFault("value_error", fmt.Sprintf("the prompts are more than %d tokens", mostScored), "questions")
		}
	}
	answers := &ojson.Object{}
	for i, q := range questions {
		p := []float64{1}
		if prompts[i] != nil {
			logits, _, err := x.score(prompts[i])
			if err != nil {
				return err
			}
			p = softmax(logits)
		}
		answers.Set(q.id, q.answer(p))
	}
	x.json(http.StatusOK, ojson.NewObject("model", x.s.name(), "answers", answers,
		"usage", ojson.NewObject("input_tokens", total, "output_tokens", 0)))
	return nil
}

// questionPrompt makes the prompt of a question.
func (x *exchange) questionPrompt(q *question, state any) (*scored, error) {
	slots := x.s.slotLabels()
	if len(slots) < len(q.labels) {
		return nil, errScoring
	}
	slots = slots[:len(q.labels)]
	options := make([]any, len(slots))
	for i, slot := range slots {
		o := ojson.NewObject("slot", slot, "label", q.labels[i])
		if d := q.described[i]; d != nil {
			o.Set("description", d)
		}
		options[i] = o
	}
	payload := ojson.NewObject("evidence", state)
	if q.criterion != nil {
		payload.Set("criterion", q.criterion)
	}
	payload.Set("options", options)
	return x.scorePrompt(payload, slots)
}

// answer is what the probabilities of a question's labels say.
func (q *question) answer(p []float64) *ojson.Object {
	o := ojson.NewObject("type", q.kind)
	if q.kind == "noul" {
		o.Set("noul", p[0])
		return o
	}
	probabilities := &ojson.Object{}
	best, expected, entropy := 0, 0.0, 0.0
	for i, label := range q.labels {
		probabilities.Set(label, p[i])
		if p[i] > p[best] {
			best = i
		}
		expected += float64(i) * p[i]
		if p[i] > 0 {
			entropy -= p[i] * math.Log(p[i])
		}
	}
	if q.kind == "choice" {
		o.Set("choice", q.labels[best])
	} else {
		legend := &ojson.Object{}
		for i, label := range q.labels {
			legend.Set(label, q.legend[i])
		}
		o.Set("score", expected)
		o.Set("legend", legend)
	}
	o.Set("probabilities", probabilities)
	confidence := 1.0
	if n := len(p); n > 1 {
		confidence = max(0, 1-entropy/math.Log(float64(n)))
	}
	o.Set("confidence", confidence)
	return o
}

// systemOneRequest reads the questions and the state they are about.
func (x *exchange) systemOneRequest(body *ojson.Object) ([]*question, any, error) {
	for _, name := range []string{"model", "state", "questions"} {
		if body.Value(name) == nil {
			return nil, nil, fieldFault("missing", "Field required", name)
		}
	}
	name, ok := body.Value("model").(string)
	if !ok {
		return nil, nil, fieldFault("value_error", "model must be a string", "model")
	}
	if err := x.s.checkName(name); err != nil {
		return nil, nil, err
	}
	state, err := evidence(body.Value("state"))
	if err != nil {
		return nil, nil, fieldFault("value_error", "state "+err.Error(), "state")
	}
	f := &fields{o: body}
	x.priority = f.priority()
	if d := f.timeout(); d > 0 {
		x.limit(d)
	}
	if f.err != nil {
		return nil, nil, fieldFault("value_error", f.err.Error())
	}
	asked, ok := body.Value("questions").(*ojson.Object)
	if !ok || asked.Len() == 0 || asked.Len() > 64 {
		return nil, nil, fieldFault("value_error", "questions must be a map of 1 to 64 questions", "questions")
	}
	var questions []*question
	for id, v := range asked.All() {
		q, err := readQuestion(id, v)
		if err != nil {
			return nil, nil, err
		}
		questions = append(questions, q)
	}
	return questions, state, nil
}

func readQuestion(id string, v any) (*question, error) {
	o, ok := v.(*ojson.Object)
	if !ok {
		return nil, fieldFault("model_type", "a question must be an object", "questions", id)
	}
	q := &question{id: id}
	switch c := o.Value("instructions").(type) {
	case nil:
	case string, *ojson.Object, []any:
		q.criterion = c
	default:
		return nil, fieldFault("value_error", "instructions must be a string, an object or an array", "questions", id, "instructions")
	}
	kind, _ := o.Value("type").(string)
	q.kind = kind
	criteria := o.Value("criteria")
	switch kind {
	case "noul":
		return q, q.noul(criteria)
	case "choice":
		return q, q.choice(criteria)
	case "score":
		return q, q.score(criteria)
	}
	return nil, fieldFault("value_error", "type must be noul, choice or score", "questions", id, "type")
}

func (q *question) fault(what string) error {
	return fieldFault("value_error", what, "questions", q.id, "criteria")
}

// noul asks for true or false.
func (q *question) noul(criteria any) error {
	q.labels, q.described = []string{"true", "false"}, make([]any, 2)
	if criteria == nil {
		return nil
	}
	o, ok := criteria.(*ojson.Object)
	if !ok {
		return q.fault("criteria must be an object of true and false")
	}
	for name, v := range o.All() {
		switch name {
		case "true":
			q.described[0] = v
		case "false":
			q.described[1] = v
		default:
			return q.fault("criteria must be an object of true and false")
		}
	}
	return nil
}

// choice asks for a label.
func (q *question) choice(criteria any) error {
	o, _ := criteria.(*ojson.Object)
	if o == nil || o.Len() == 0 || o.Len() > mostSlots {
		return q.fault(fmt.Sprintf("criteria must be a map of 1 to %d labels", mostSlots))
	}
	for label, v := range o.All() {
		switch v.(type) {
		case nil, string, *ojson.Object, []any:
		default:
			return q.fault("a label's value must be a string, an object, an array or null")
		}
		q.labels, q.described = append(q.labels, label), append(q.described, v)
	}
	return nil
}

// score asks for a level.
func (q *question) score(criteria any) error {
	list, _ := criteria.([]any)
	if len(list) == 0 || len(list) > mostSlots {
		return q.fault(fmt.Sprintf("criteria must be an array of 1 to %d levels", mostSlots))
	}
	for i := range list {
		q.labels = append(q.labels, strconv.Itoa(i))
	}
	q.described, q.legend = list, list
	return nil
}
