package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseModel(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Model
		err  error
	}{
		{"unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M", Model{"unsloth/Qwen3.8-27B-GGUF", "UD-Q4_K_M"}, nil},
		{"mlx-community/Qwen3.8-27B-4bit", Model{"mlx-community/Qwen3.8-27B-4bit", ""}, nil},
		{"a/b", Model{"a/b", ""}, nil},
		{"_a/b_", Model{"_a/b_", ""}, nil},
		{"a/b:4", Model{"a/b", "4"}, nil},
		{"a/" + strings.Repeat("n", 96), Model{"a/" + strings.Repeat("n", 96), ""}, nil},
		{"a/b:" + strings.Repeat("v", 64), Model{"a/b", strings.Repeat("v", 64)}, nil},
		{"", Model{}, errModel},
		{"b", Model{}, errModel},
		{"/b", Model{}, errModel},
		{"a/", Model{}, errModel},
		{"a/b/c", Model{}, errModel},
		{"-a/b", Model{}, errModel},
		{"a./b", Model{}, errModel},
		{".a/b", Model{}, errModel},
		{"a/b-", Model{}, errModel},
		{"a/.b", Model{}, errModel},
		{"a--b/c", Model{}, errModel},
		{"a/b--c", Model{}, errModel},
		{"a/b..c", Model{}, errModel},
		{"a/b.git", Model{}, errModel},
		{"a b/c", Model{}, errModel},
		{"a/b\n", Model{}, errModel},
		{"https://huggingface.co/a/b", Model{}, errModel},
		{"a/" + strings.Repeat("n", 97), Model{}, errModel},
		{"a/b:", Model{}, errVariant},
		{"a/b:-Q4", Model{}, errVariant},
		{"a/b:_Q4", Model{}, errVariant},
		{"a/b:Q4..0", Model{}, errVariant},
		{"a/b:Q4:0", Model{}, errVariant},
		{"a/b:Q4/0", Model{}, errVariant},
		{"a/b:" + strings.Repeat("v", 65), Model{}, errVariant},
	} {
		got, err := ParseModel(tt.text)
		if got != tt.want || err != tt.err {
			t.Errorf("ParseModel(%q) = %v, %v; want %v, %v", tt.text, got, err, tt.want, tt.err)
		}
		if err == nil && got.String() != tt.text {
			t.Errorf("%q prints as %q", tt.text, got)
		}
	}
}

func TestParseDraft(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("own/draft", 0o777); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                           "",
		"incoai/Qwen3.8-27B-DFlash2": "incoai/Qwen3.8-27B-DFlash2",
		"own/draft":                  filepath.Join(dir, "own/draft"),
		"own":                        filepath.Join(dir, "own"),
		"./a/b":                      filepath.Join(dir, "a/b"),
		"../b":                       filepath.Join(filepath.Dir(dir), "b"),
		"/x/y":                       "/x/y",
		"~/d":                        "/home/u/d",
	} {
		if got, err := ParseDraft(text, "/home/u"); err != nil || got != want {
			t.Errorf("ParseDraft(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"draft", "a/b/c", "a/b:Q4"} {
		if got, err := ParseDraft(text, ""); err == nil {
			t.Errorf("ParseDraft(%q) = %q", text, got)
		}
	}
}

// The names of the selections' folders are part of an installation: another name is another download.
func TestSelectionLink(t *testing.T) {
	m := Model{"a/b", "Q4_K_M"}
	for _, tt := range []struct {
		s    Selection
		want string
	}{
		{Selection{Model: m}, "a/b:Q4_K_M"},
		// printf '["a/b:Q4_K_M","main",false,null]' | sha256sum, and so on.
		{Selection{Model: m, Revision: "main"}, ".selections/4293d174b28bb2ce76395e5671d2d898d409e3901a48a3c239d8198f28cf2f6a"},
		{Selection{Model: m, LanguageOnly: true}, ".selections/852936ca23835afb2fe6a2d7257f06ae9a3e8f4de22382160183d44af98f8abf"},
		{Selection{Model: m, Draft: "c/d"}, ".selections/127da4bf14439b18b4dc2566810fff5947f81870460fbfe84e2f7b1653c8e22f"},
	} {
		if got := tt.s.link(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.s, got, tt.want)
		}
	}
}
