package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
)

// TestDemoEightClients: eight clients at once on four lanes have the answers they have alone, and passes are of all lanes
// (row 121). It asks again until a pass was of four, which eight at once hardly ever miss.
func TestDemoEightClients(t *testing.T) {
	url, _ := demoOn(t, "cpu", 4)
	questions := []string{"What is the capital of France?", "What is the capital of Spain?", "What color is the sky?", "Name a color."}
	say := func(question string) string {
		c := ask(t, url, object{"temperature": 0, "messages": user(question), "max_tokens": 100, "ignore_eos": true})
		if len(c.Choices) != 1 {
			t.Errorf("%+v", c)
			return ""
		}
		return c.Choices[0].Message.Reasoning + c.Choices[0].Message.Content
	}
	alone := map[string]string{}
	for _, q := range questions {
		alone[q] = say(q)
	}
	width := func() float64 {
		res, err := http.Get(url + "/status")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		var status struct {
			Scheduler struct {
				Widths map[string]float64 `json:"decode_batches_by_width"`
			}
		}
		if err != nil || json.Unmarshal(data, &status) != nil {
			t.Fatalf("%v: %s", err, data)
		}
		return status.Scheduler.Widths["b4"]
	}
	for round := 0; round == 0 || width() == 0; round++ {
		if round == 200 {
			t.Fatal("no pass was of four lanes")
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				q := questions[i%len(questions)]
				if got := say(q); got != alone[q] {
					t.Errorf("%s: %q, alone %q", q, got, alone[q])
				}
			})
		}
		wg.Wait()
	}
}
