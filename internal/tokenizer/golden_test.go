package tokenizer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReferenceIDs holds the IDs to those of the public GGUF runtime and, where it does not normalize, of the NFC form.
func TestReferenceIDs(t *testing.T) {
	large, tiny := must(newLarge())(t), newTokenizer(t, tinyFile)
	for _, tt := range []struct {
		file string
		tok  *Tokenizer
	}{
		{"qwen35.jsonl", large},
		{"qwen35_more.jsonl", large},
		{"tiny.jsonl", tiny},
	} {
		t.Run(tt.file, func(t *testing.T) {
			for _, line := range readLines[struct {
				Text         string
				IDs          []int32 `json:"ids"`
				IDsNFC       []int32 `json:"ids_nfc"`
				ParseSpecial bool    `json:"parse_special"`
				NFCChanges   bool    `json:"nfc_changes"`
			}](t, "../../fixtures/tokenizer/"+tt.file) {
				want := line.IDs
				if line.NFCChanges {
					want = line.IDsNFC
				}
				got := tt.tok.Encode(line.Text, line.ParseSpecial)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%.80q:\n%s", line.Text, diff)
				}
				if text := tt.tok.Decode(got, got...); text != toNFC(line.Text) {
					t.Errorf("%.80q: decodes to %.80q", line.Text, text)
				}
				if line.NFCChanges {
					raw := tt.tok.appendPieces(nil, line.Text, new(workspace))
					if diff := cmp.Diff(line.IDs, raw); diff != "" {
						t.Errorf("%.80q, not normalized:\n%s", line.Text, diff)
					}
				}
			}
		})
	}
}

// TestPromptIDs holds the prompts of the trained model to the IDs it was trained with.
func TestPromptIDs(t *testing.T) {
	tok := newTokenizer(t, pebbleFile)
	text, err := os.ReadFile("../../fixtures/pebble/prompts.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Prompts []struct {
			Prompt, Text string
			IDs          []int32 `json:"ids"`
			Greedy       []int32 `json:"greedy_ids"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Prompts) == 0 {
		t.Fatal(len(file.Prompts), err)
	}
	for _, p := range file.Prompts {
		if diff := cmp.Diff(p.IDs, tok.Encode(p.Prompt, true)); diff != "" {
			t.Errorf("%q:\n%s", p.Prompt, diff)
		}
		if got := tok.Decode(p.Greedy, p.Greedy...); got != p.Text {
			t.Errorf("%v decodes to %q, want %q", p.Greedy, got, p.Text)
		}
	}
}

// A libraryLine is a line of testdata/huggingface.jsonl.
type libraryLine struct {
	Text, NFC     string
	Qwen35, Flint struct {
		IDs    []int32 `json:"ids"`
		Pieces []int   // ends, in characters
	}
}

// TestLibraryIDs holds IDs, pieces and normalization to those of the tokenizers library.
func TestLibraryIDs(t *testing.T) {
	qwen, flint := must(newLarge())(t), must(newLargeFlint())(t)
	for _, line := range readLines[libraryLine](t, "testdata/huggingface.jsonl") {
		if got := toNFC(line.Text); got != line.NFC {
			t.Errorf("NFC of %+q:\n got %+q\nwant %+q", line.Text, got, line.NFC)
		}
		if diff := cmp.Diff(line.Qwen35.IDs, qwen.Encode(line.Text, true)); diff != "" {
			t.Errorf("qwen35, %q:\n%s", line.Text, diff)
		}
		if diff := cmp.Diff(line.Flint.IDs, flint.Encode(line.Text, true)); diff != "" {
			t.Errorf("flint, %q:\n%s", line.Text, diff)
		}
		if diff := cmp.Diff(line.Qwen35.Pieces, charEnds(qwen.split(line.Text))); diff != "" {
			t.Errorf("qwen35, pieces of %q:\n%s", line.Text, diff)
		}
		if diff := cmp.Diff(line.Flint.Pieces, charEnds(flint.split(line.Text))); diff != "" {
			t.Errorf("flint, pieces of %q:\n%s", line.Text, diff)
		}
	}
}

// TestLibraryText holds decoding to the tokenizers library, which replaces maximal subparts as Rust does.
func TestLibraryText(t *testing.T) {
	tok := must(newLarge())(t)
	for _, line := range readLines[struct {
		IDs  []int32 `json:"ids"`
		Text string
	}](t, "testdata/decode.jsonl") {
		if got := tok.Decode(line.IDs); got != line.Text {
			t.Errorf("%v:\n got %q\nwant %q", line.IDs, got, line.Text)
		}
	}
}

// split returns the pieces of a stretch.
func (t *Tokenizer) split(text string) []string {
	var pieces []string
	for at := 0; at < len(text); {
		end := len(text)
		if t.profile.segment != nil {
			end = t.profile.segment(t.classes, text, at)
		}
		for at < end {
			next := t.profile.next(t.classes, text[:end], at)
			pieces = append(pieces, text[at:next])
			at = next
		}
	}
	return pieces
}

func charEnds(pieces []string) []int {
	end := 0
	ends := make([]int, len(pieces))
	for i, piece := range pieces {
		end += len([]rune(piece))
		ends[i] = end
	}
	return ends
}
