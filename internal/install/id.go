// Package install finds, checks, downloads and publishes models: a target named by its repository on the Hub, or by local
// files, and the draft of its family. What is served is an assembly, a folder of links that never changes (assembly.go).
// Every model is held to the engine's check on its metadata, a configuration or the header of a GGUF read by ranges,
// before a weight file is downloaded.
package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Model names a target on the Hub: OWNER/NAME[:VARIANT].
type Model struct {
	Repo    string // OWNER/NAME
	Variant string // of a GGUF repository; empty: none
}

var (
	ownerPattern   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?$`)
	variantPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

var (
	errModel   = errors.New("model must be a full Hugging Face repository ID (owner/repo)")
	errVariant = errors.New("model variant must be a short name such as UD-Q4_K_M (owner/repo:VARIANT)")
)

// ParseModel reads OWNER/NAME[:VARIANT].
func ParseModel(text string) (Model, error) {
	repo, variant, given := strings.Cut(text, ":")
	if !isRepo(repo) {
		return Model{}, errModel
	}
	if given && (!variantPattern.MatchString(variant) || strings.Contains(variant, "..")) {
		return Model{}, errVariant
	}
	return Model{repo, variant}, nil
}

func isRepo(text string) bool {
	owner, name, ok := strings.Cut(text, "/")
	return ok && ownerPattern.MatchString(owner) && namePattern.MatchString(name) &&
		!strings.Contains(text, "--") && !strings.Contains(text, "..") && !strings.HasSuffix(text, ".git")
}

// String is the model as it is named on a command line.
func (m Model) String() string {
	if m.Variant == "" {
		return m.Repo
	}
	return m.Repo + ":" + m.Variant
}

// A Selection is a model and what is to be installed of it. Each selection is an installation of its own.
type Selection struct {
	Model        Model
	Revision     string // a branch, tag or commit of the target; empty: the default branch
	Draft        string // a repository, or the absolute path of a directory; empty: the family's
	LanguageOnly bool   // no vision
}

// ParseDraft reads the draft of a selection: the path of a directory, which is made absolute, or a repository of the Hub.
// A path begins with /, ./, ../ or ~, or names a directory that is there.
func ParseDraft(text, home string) (string, error) {
	path := text
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = filepath.Join(home, path[1:])
	}
	info, err := os.Stat(path)
	isPath := filepath.IsAbs(path) || path == "." || path == ".." ||
		strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../")
	switch {
	case text == "":
		return "", nil
	case isPath || err == nil && info.IsDir():
		return filepath.Abs(path)
	case isRepo(text):
		return text, nil
	}
	return "", errors.New("draft model must be a Hugging Face repository ID (owner/repo) or the path of a directory")
}

// link is where a selection's installation is found below the models directory.
func (s Selection) link() string {
	if s.Revision == "" && s.Draft == "" && !s.LanguageOnly {
		return filepath.FromSlash(s.Model.String())
	}
	return filepath.Join(selections, key(s.Model.String(), orNull(s.Revision), s.LanguageOnly, orNull(s.Draft)))
}

// selections is the folder of the installations that a bare model does not name.
const selections = ".selections"

// key names a selection by the SHA-256 of the compact JSON array of what it is made of.
func key(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings and booleans have a form in JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
