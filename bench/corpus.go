// Package bench measures models: how far the next-token distributions of two of them are apart, how many tokens a cycle a
// draft is worth, and how fast they run.
package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A Prompt is a text to go on from.
type Prompt struct {
	Name string
	Text string
}

// maxPrompts bounds the prompts of a file, and maxPromptBytes the file.
const (
	maxPrompts     = 100_000
	maxPromptBytes = 256 << 20
)

// ReadPrompts reads prompts: a JSON object with an array "prompts" of objects that have "prompt", and maybe "question"; JSON
// lines of such objects; or plain text, one prompt a paragraph.
func ReadPrompts(r io.Reader) ([]Prompt, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPromptBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPromptBytes {
		return nil, fmt.Errorf("more than %d bytes of prompts", maxPromptBytes)
	}
	prompts, err := parsePrompts(string(data))
	switch {
	case err != nil:
		return nil, err
	case len(prompts) == 0:
		return nil, fmt.Errorf("no prompts; a JSON object with \"prompts\", JSON lines with \"prompt\", or paragraphs of text are read")
	case len(prompts) > maxPrompts:
		return nil, fmt.Errorf("%d prompts; at most %d are read", len(prompts), maxPrompts)
	}
	return prompts, nil
}

// record is a prompt in JSON.
type record struct {
	Prompt   string
	Question string
	Text     string
}

func (r record) prompt(n int) (Prompt, error) {
	p := Prompt{Name: r.Question, Text: r.Prompt}
	if p.Text == "" {
		p.Text = r.Text
	}
	if p.Text == "" {
		return p, fmt.Errorf("prompt %d has neither \"prompt\" nor \"text\"", n)
	}
	if p.Name == "" {
		p.Name = fmt.Sprintf("prompt %d", n)
	}
	return p, nil
}

func parsePrompts(text string) ([]Prompt, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return paragraphs(text), nil
	}
	var file struct{ Prompts []record }
	if err := json.Unmarshal([]byte(text), &file); err == nil && file.Prompts != nil {
		var prompts []Prompt
		for i, r := range file.Prompts {
			p, err := r.prompt(i + 1)
			if err != nil {
				return nil, err
			}
			prompts = append(prompts, p)
		}
		return prompts, nil
	}
	return lines(text)
}

func lines(text string) ([]Prompt, error) {
	var prompts []Prompt
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, 16<<20)
	for n := 1; scanner.Scan(); n++ {
		if strings.TrimSpace(scanner.Text()) == "" {
			continue
		}
		var r record
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		p, err := r.prompt(n)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		prompts = append(prompts, p)
	}
	return prompts, scanner.Err()
}

func paragraphs(text string) []Prompt {
	var prompts []Prompt
	for _, p := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		if strings.TrimSpace(p) != "" {
			prompts = append(prompts, Prompt{Name: fmt.Sprintf("paragraph %d", len(prompts)+1), Text: p})
		}
	}
	return prompts
}
