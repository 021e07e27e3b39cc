package server

import (
	"net/http"
	"strings"

	"splash/internal/chat/ojson"
	"splash/internal/webui"
)

// A route answers requests of a method and path.
type route struct {
	method string
	public bool // without a key
	serve  func(x *exchange) error
}

// table lists the routes by path.
func (s *Server) table() map[string]route {
	get := func(f func(x *exchange) error) route { return route{method: http.MethodGet, serve: f} }
	public := func(f func(x *exchange) error) route { return route{method: http.MethodGet, serve: f, public: true} }
	routes := map[string]route{
		"/v1/chat/completions":      s.generation((*exchange).chatCompletion),
		"/v1/completions":           s.generation((*exchange).textCompletion),
		"/v1/responses":             s.generation((*exchange).response),
		"/v1/messages":              s.generation((*exchange).message),
		"/v1/messages/count_tokens": s.counting((*exchange).countTokens),
		"/v1/judgments":             s.generation((*exchange).judge),
		"/v1/systemone":             s.generation((*exchange).systemOne),
		"/tokenize":                 s.counting((*exchange).tokenize),
		"/apply-template":           s.counting((*exchange).applyTemplate),
		"/v1/models":                get((*exchange).listModels),
		"/health":                   public((*exchange).health),
		"/ready":                    public((*exchange).ready),
		"/status":                   get((*exchange).status),
		"/metrics":                  get((*exchange).metrics),
	}
	if !s.o.NoPage {
		page := webui.Handler()
		for _, path := range webui.Paths() {
			routes[path] = public(func(x *exchange) error {
				x.answered = true
				page.ServeHTTP(x.w, x.r)
				return nil
			})
		}
	}
	return routes
}

// modelPath is what the paths of models begin with; a model's ID may contain slashes.
const modelPath = "/v1/models/"

func (s *Server) route(method, path string) (route, bool) {
	r, ok := s.routes[path]
	if id, isModel := strings.CutPrefix(path, modelPath); isModel {
		r, ok = route{method: http.MethodGet, serve: func(x *exchange) error { return x.getModel(id) }}, true
	}
	if id, isResponse := responseID(path); isResponse {
		r, ok = route{method: http.MethodGet, serve: func(x *exchange) error { return x.getResponse(id) }}, true
		if method == http.MethodDelete {
			r = route{method: method, serve: func(x *exchange) error { return x.deleteResponse(id) }}
		}
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return r, ok && r.method == method
}

// generation is a route whose requests hold a slot from before their body is read until the response is complete.
func (s *Server) generation(serve func(x *exchange, body *ojson.Object) error) route {
	return s.post(s.slots, serve)
}

// counting is a route whose requests make a prompt and no output. They have slots of their own.
func (s *Server) counting(serve func(x *exchange, body *ojson.Object) error) route {
	return s.post(s.countSlots, serve)
}

func (s *Server) post(slots chan struct{}, serve func(x *exchange, body *ojson.Object) error) route {
	return route{method: http.MethodPost, serve: func(x *exchange) error {
		if err := s.checkBody(x.r); err != nil {
			return err
		}
		if s.stopping() {
			return errShutdown
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			return overloaded("frontend request capacity is exhausted")
		}
		if !s.bodies.take(x.r.ContentLength) {
			return overloaded("request body capacity is exhausted; retry shortly")
		}
		defer s.bodies.give(x.r.ContentLength)
		body, err := x.object()
		if err != nil {
			return err
		}
		return serve(x, body)
	}}
}

// object reads the body.
func (x *exchange) object() (*ojson.Object, error) {
	data, err := x.readBody()
	if err != nil {
		return nil, err
	}
	x.unread = false
	x.s.metrics.stage(stageUpload, x.began)
	return parseBody(data)
}
