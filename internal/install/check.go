package install

import (
	"slices"
	"strings"

	"splash/internal/gguf"
	"splash/internal/tokenizer"
	"splash/planner"
)

// A Checker is the engine's check of a model by its metadata, before a weight is there. Every start applies the same rules
// to what is installed.
type Checker interface {
	// Quantized refuses a GGUF that holds most of its values unquantized: a rule of the installation alone.
	Quantized(h *gguf.Header) error
	// GGUF plans a target from the header of its files.
	GGUF(h *gguf.Header) (*planner.Plan, error)
	// Config checks the config.json of a safetensors target.
	Config(config []byte) (*planner.Plan, error)
	// Projector checks the header of a GGUF target's vision projector.
	Projector(h *gguf.Header, target *planner.Plan) error
	// Tower checks the vision configuration of a safetensors target, and Processor its preprocessing.
	Tower(config []byte, target *planner.Plan) error
	Processor(config []byte) error
	// Draft checks a draft's config.json against its target.
	Draft(config []byte, target *planner.Plan) (*planner.Draft, error)
	// Vocabulary checks the tokenizer that a GGUF's header holds, and Tokenizer the one of a snapshot's files.
	Vocabulary(h *gguf.Header) error
	Tokenizer(s *tokenizer.Snapshot) error
}

// Engine is the check of the planner and the tokenizer.
type Engine struct{}

var _ Checker = Engine{}

// Quantized implements Checker.
func (Engine) Quantized(h *gguf.Header) error { return planner.RequireQuantized(h) }

// GGUF implements Checker.
func (Engine) GGUF(h *gguf.Header) (*planner.Plan, error) { return planner.PlanGGUF(h) }

// Config implements Checker.
func (Engine) Config(config []byte) (*planner.Plan, error) { return planner.CheckConfig(config) }

// Projector implements Checker.
func (Engine) Projector(h *gguf.Header, target *planner.Plan) error {
	_, err := planner.PlanProjector(h, target.Family.Vision)
	return err
}

// Tower implements Checker.
func (Engine) Tower(config []byte, target *planner.Plan) error {
	return planner.CheckVisionConfig(config, target.Family.Vision)
}

// Processor implements Checker.
func (Engine) Processor(config []byte) error { return planner.CheckProcessor(config) }

// Draft implements Checker.
func (Engine) Draft(config []byte, target *planner.Plan) (*planner.Draft, error) {
	return planner.PlanDraft(config, target)
}

// Vocabulary implements Checker.
func (Engine) Vocabulary(h *gguf.Header) error {
	v, err := tokenizer.FromGGUF(h)
	if err != nil {
		return err
	}
	_, err = tokenizer.New(v)
	return err
}

// Tokenizer implements Checker.
func (Engine) Tokenizer(s *tokenizer.Snapshot) error {
	v, err := tokenizer.FromJSON(s)
	if err != nil {
		return err
	}
	_, err = tokenizer.New(v)
	return err
}

// projectorTypes are the types of a header's tensors, for a message.
func projectorTypes(h *gguf.Header) string {
	var types []string
	for i := range h.Tensors {
		if t := h.Tensors[i].Type.String(); !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return strings.Join(types, ", ")
}
