package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// hermes configures Hermes in a profile of its own, so that the user's model stays what it is.
func hermes(ctx context.Context, l *launch) error {
	home, err := l.hermesHome()
	if err != nil {
		return err
	}
	config := filepath.Join(home, "config.yaml")
	created := false
	if _, err := os.Stat(config); errors.Is(err, os.ErrNotExist) {
		if created, err = l.createProfile(ctx, home); err != nil {
			return err
		}
	}
	err = edit(ctx, config, func(text string) (string, error) { return l.hermesProfile(text, created) })
	if err != nil {
		return err
	}
	l.env.Set("HERMES_HOME", home)
	l.env.Set("CUSTOM_BASE_URL", l.endpoint())
	l.env.Set("OPENAI_BASE_URL", l.endpoint())
	l.env.Set("OPENAI_API_KEY", l.key())
	l.args = []string{"--provider", "custom", "--model", l.Model}
	return nil
}

// hermesHome is the directory of the server's profile, in the root that HERMES_HOME belongs to as Hermes sees it:
// ~/.hermes for what is inside it, ROOT for ROOT/profiles/NAME, and any other directory for itself.
func (l *launch) hermesHome() (string, error) {
	user, err := l.env.home()
	if err != nil {
		return "", err
	}
	root := filepath.Join(user, ".hermes")
	if value := strings.TrimSpace(l.env.Get("HERMES_HOME")); value != "" {
		home, err := l.env.path(os.Expand(value, l.env.Get))
		if err != nil {
			return "", err
		}
		if home, err = filepath.Abs(home); err != nil {
			return "", err
		}
		if !within(home, root) {
			root = home
			if parent := filepath.Dir(home); filepath.Base(parent) == "profiles" {
				root = filepath.Dir(parent)
			}
		}
	}
	return filepath.Join(root, "profiles", l.name()), nil
}

// within reports whether a directory is root or below it, whatever links lead there.
func within(dir, root string) bool {
	resolve := func(path string) string {
		if to, err := filepath.EvalSymlinks(path); err == nil {
			return to
		}
		return path
	}
	rel, err := filepath.Rel(resolve(root), resolve(dir))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// createProfile lets Hermes create the profile, and reports whether it did: another launch may have been first.
func (l *launch) createProfile(ctx context.Context, home string) (bool, error) {
	name := filepath.Base(home)
	cmd := exec.CommandContext(ctx, l.path, "profile", "create", name, "--no-alias")
	cmd.Env = l.env
	out, err := cmd.CombinedOutput()
	if err == nil {
		return true, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false, fmt.Errorf("cannot run %s: %w", l.path, err)
	}
	if _, err := os.Stat(home); err == nil {
		return false, nil
	}
	return false, fmt.Errorf("hermes profile create %s failed: %s", name, lastLine(out, exit))
}

// lastLine is the last line that a command wrote, or how it ended.
func lastLine(out []byte, exit error) string {
	const most = 500
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if line == "" {
		return exit.Error()
	}
	return fmt.Sprintf("%.*s", most, line)
}

// hermesProfile puts the server in the place of a profile's model, whose settings beside are kept unless the profile is new:
// then they are those of the user's own model.
func (l *launch) hermesProfile(text string, created bool) (changed string, err error) {
	defer func() { // the library panics on what it has not thought of
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML of a Hermes profile cannot be changed: %v", p)
		}
	}()
	doc, err := yamlDocument(text)
	if err != nil {
		return "", err
	}
	if len(doc.Content) == 0 { // comments at most
		doc = &yaml.Node{Kind: yaml.DocumentNode, HeadComment: strings.TrimSpace(text)}
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		doc.Content = []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return "", errors.New("a Hermes profile must be a mapping")
	}
	model := yamlMember(root, "model")
	if created || isNull(model) {
		*model = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	if model.Kind != yaml.MappingNode {
		return "", errors.New("the model of a Hermes profile must be a mapping")
	}
	key := "local"
	if l.env.Get(keyVariable) != "" {
		key = "${" + keyVariable + "}" // Hermes looks it up, so that the file does not hold it
	}
	for _, setting := range []struct{ name, tag, value string }{
		{"default", "!!str", l.Model},
		{"provider", "!!str", "custom"},
		{"base_url", "!!str", l.endpoint()},
		{"api_key", "!!str", key},
		{"api_mode", "!!str", "chat_completions"},
		{"supports_vision", "!!bool", strconv.FormatBool(l.images())},
		{"context_length", "!!int", strconv.Itoa(l.Context)},
		{"max_tokens", "!!int", strconv.Itoa(l.reserve())},
	} {
		node := yaml.Node{Kind: yaml.ScalarNode, Tag: setting.tag, Value: setting.value}
		if setting.tag == "!!str" {
			node.Style = yaml.DoubleQuotedStyle
		}
		*yamlMember(model, setting.name) = node
	}
	return encodeYAML(doc)
}

// encodeYAML writes a document, and holds what it has written to what the document says: a file that the user wrote may hold
// what the encoder cannot spell.
func encodeYAML(doc *yaml.Node) (string, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(doc), e.Close()); err != nil {
		return "", err
	}
	again, err := yamlDocument(out.String())
	if err != nil {
		return "", err
	}
	if !sameYAML(doc, again) {
		return "", errors.New("the YAML of a Hermes profile cannot be written as it was")
	}
	return out.String(), nil
}

// sameYAML reports whether two nodes say the same, whatever their styles and comments.
func sameYAML(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.ShortTag() != b.ShortTag() || a.Value != b.Value || a.Anchor != b.Anchor || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameYAML(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// yamlDocument reads a file of one document, which has no content where the file is empty.
func yamlDocument(text string) (*yaml.Node, error) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(strings.NewReader(text))
	err := d.Decode(&doc)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("not the YAML of a Hermes profile: %w", err)
	}
	if err == nil && d.Decode(&more) != io.EOF {
		return nil, errors.New("a Hermes profile must be one YAML document")
	}
	return &doc, nil
}

// yamlMember is the value of a key of a mapping, a new null where there is none. Of several the last counts, as for Hermes.
func yamlMember(mapping *yaml.Node, key string) *yaml.Node {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if k := mapping.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return mapping.Content[i+1]
		}
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
	return value
}
