package server

import "net/http"

// A modelEntry is a model as GET /v1/models lists it.
type modelEntry struct {
	ID         string   `json:"id"`
	Object     string   `json:"object"`
	Created    int64    `json:"created"`
	Owner      string   `json:"owned_by"`
	MaxLen     int      `json:"max_model_len"`
	Context    int      `json:"context_length"`
	Vision     bool     `json:"vision"`
	Modalities []string `json:"input_modalities"`
	Root       string   `json:"root,omitempty"`
}

// models are the names the model has: the one that responses report, then the others.
func (s *Server) models() []modelEntry {
	names := append([]string{s.name(), s.model.ID}, s.o.Aliases...)
	var list []modelEntry
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		e := modelEntry{
			ID: name, Object: "model", Owner: "splash", MaxLen: s.model.Context, Context: s.model.Context,
			Vision: s.model.Vision != nil, Modalities: s.modalities(),
		}
		if len(list) > 0 {
			e.Root = list[0].ID
		}
		list = append(list, e)
	}
	return list
}

// listModels answers GET /v1/models.
func (x *exchange) listModels() error {
	x.w.Header().Set("x-typesafe-request-id", "req_"+randomHex(12))
	list := x.s.models()
	type short struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		ReleaseDate string `json:"release_date"`
	}
	r := struct {
		Object string       `json:"object"`
		Data   []modelEntry `json:"data"`
		Models []short      `json:"models"`
	}{Object: "list", Data: list}
	for _, e := range list {
		r.Models = append(r.Models, short{Name: e.ID, Description: "Splash resident model"})
	}
	x.json(http.StatusOK, r)
	return nil
}

// getModel answers GET /v1/models/{id}.
func (x *exchange) getModel(id string) error {
	for _, e := range x.s.models() {
		if e.ID == id {
			x.json(http.StatusOK, e)
			return nil
		}
	}
	return &Error{Status: http.StatusNotFound, Code: codeNoModel, Message: "model not found"}
}
