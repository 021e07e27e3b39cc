package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"splash/internal/gguf"
	"splash/internal/safetensors"
	"splash/internal/tokenizer"
	"splash/planner"
)

// Formats of a target's weights and of its vision, as records name them.
const (
	GGUF        = "gguf"
	Safetensors = "safetensors"
	NoVision    = "none"
)

// A candidate is a target that passed every check that its metadata allow. No weight file of it has been downloaded.
type candidate struct {
	plan      *planner.Plan
	format    string
	vision    string
	notes     []string        // lines to print
	projector *gguf.Header    // of a GGUF target with vision
	header    *gguf.Header    // of a GGUF target
	links     map[string]link // by path in the assembly
}

// A link is a file that an assembly links.
type link struct {
	from files
	name string
}

// add links a file of src under a path of the assembly.
func (c *candidate) add(path string, src files, name string) {
	if c.links == nil {
		c.links = map[string]link{}
	}
	c.links[path] = link{src, name}
}

// inspect checks the target that a repository holds, from metadata alone.
func (in *Installer) inspect(ctx context.Context, src files, variant string, languageOnly bool) (*candidate, error) {
	if variant == "" && hasCheckpoint(src) {
		return in.inspectCheckpoint(ctx, src, languageOnly)
	}
	choice, err := SelectGGUF(src.names(), variant)
	if err != nil {
		return nil, err
	}
	c, err := in.inspectGGUF(ctx, src, choice.Files)
	if err != nil {
		return nil, err
	}
	if choice.Note != "" {
		c.notes = append(c.notes, choice.Note)
	}
	c.notes = append(c.notes, fmt.Sprintf("Selected %s from %s.", choice.Files[0], src.source().Repo))
	if languageOnly || c.plan.Family.Vision == nil {
		return c, nil
	}
	name, header, err := chooseProjector(ctx, src)
	if err != nil {
		return nil, err
	}
	return c, in.addProjector(c, src, name, header)
}

func hasCheckpoint(src files) bool {
	return slices.ContainsFunc(src.names(), func(name string) bool { return strings.HasSuffix(name, ".safetensors") })
}

// inspectGGUF checks the target of those files: first whether it is quantized at all, then the configuration and the plan
// of its tensors, then its tokenizer.
func (in *Installer) inspectGGUF(ctx context.Context, src files, names []string) (*candidate, error) {
	h, _, err := ggufHeader(ctx, src, names)
	if err != nil {
		return nil, err
	}
	if err := in.check().Quantized(h); err != nil {
		return nil, err
	}
	plan, err := in.check().GGUF(h)
	if err != nil {
		return nil, err
	}
	if err := in.check().Vocabulary(h); err != nil {
		return nil, err
	}
	c := &candidate{plan: plan, format: GGUF, vision: NoVision, header: h}
	for _, name := range names {
		c.add("target/"+base(name), src, name)
	}
	return c, checkPaths(c.links)
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

const languageHint = "; use --language-only to serve text only"

// chooseProjector picks the vision projector among a repository's root files named mmproj, by their headers: of BF16
// weights, or else F32, or else F16.
func chooseProjector(ctx context.Context, src files) (name string, h *gguf.Header, err error) {
	type projector struct {
		name   string
		header *gguf.Header
	}
	var found []string
	ranks := make([][]projector, 3)
	for _, name := range projectors(src.names()) {
		h, unreadable, err := ggufPart(ctx, src, name)
		if unreadable {
			return "", nil, err
		}
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		arch, _ := h.String("general.architecture")
		found = append(found, fmt.Sprintf("%s (%s: %s)", name, arch, projectorTypes(h)))
		if rank, ok := planner.ProjectorRank(h); ok && len(h.Tensors) > 0 {
			ranks[rank] = append(ranks[rank], projector{name, h})
		}
	}
	for rank, class := range ranks {
		if len(class) == 1 {
			return class[0].name, class[0].header, nil
		}
		if len(class) > 1 {
			var names []string
			for _, p := range class {
				names = append(names, p.name)
			}
			return "", nil, fmt.Errorf("several %s vision projectors, %s, describe no single tower%s",
				[...]string{"BF16", "F32", "F16"}[rank], strings.Join(names, ", "), languageHint)
		}
	}
	if found == nil {
		found = []string{"no GGUF named mmproj"}
	}
	return "", nil, fmt.Errorf("the GGUF repository has no BF16, F32 or F16 vision projector (%s)%s",
		strings.Join(found, "; "), languageHint)
}

func (in *Installer) addProjector(c *candidate, src files, name string, h *gguf.Header) error {
	if err := in.check().Projector(h, c.plan); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.vision, c.projector = GGUF, h
	c.add("vision/mmproj.gguf", src, name)
	return nil
}

// Files of a safetensors target's tokenizer, linked where they are there.
var tokenizerFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "vocab.json", "merges.txt", "added_tokens.json",
	"special_tokens_map.json",
}

const indexFile = "model.safetensors.index.json"

// inspectCheckpoint checks an MLX, Model Optimizer or compressed-tensors target: its configuration, then its tokenizer and
// its vision.
func (in *Installer) inspectCheckpoint(ctx context.Context, src files, languageOnly bool) (*candidate, error) {
	required := []string{"config.json", "tokenizer.json", "tokenizer_config.json"}
	if err := requireFiles(src, required, !languageOnly); err != nil {
		return nil, err
	}
	config, err := src.read(ctx, "config.json", maxJSON)
	if err != nil {
		return nil, err
	}
	plan, err := in.check().Config(config)
	if err != nil {
		return nil, err
	}
	c := &candidate{plan: plan, format: Safetensors, vision: NoVision}
	c.add("config.json", src, "config.json")
	c.add("tokenizer/config.json", src, "config.json")
	shards, err := readShards(ctx, src)
	if err != nil {
		return nil, err
	}
	if err := c.addShards("target/", src, shards.target); err != nil {
		return nil, err
	}
	if !languageOnly && plan.Family.Vision != nil {
		if err := in.addTower(ctx, c, src, config, shards.tower); err != nil {
			return nil, err
		}
	}
	return c, in.addTokenizer(ctx, c, src)
}

// requireFiles refuses a repository that lacks what its target needs beside weights. A missing processor is named where
// other files are missing too; alone, it is refused once the family is known to need it.
func requireFiles(src files, required []string, vision bool) error {
	var missing []string
	for _, name := range required {
		if !src.has(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if vision && processorFile(src) == "" {
		missing = append(missing, processors[0])
	}
	return errMissing(src, missing, "")
}

func errMissing(src files, missing []string, hint string) error {
	slices.Sort(missing)
	return fmt.Errorf("target repository %s is missing: %s. "+
		"Configuration, tokenizer and processor must come from the target repository%s",
		src.source().Repo, strings.Join(missing, ", "), hint)
}

var processors = [...]string{"preprocessor_config.json", "processor_config.json"}

func processorFile(src files) string {
	for _, name := range processors {
		if src.has(name) {
			return name
		}
	}
	return ""
}

// readProcessor returns the configuration of the processor: a preprocessor_config.json, or the image_processor object that
// newer releases of transformers save in processor_config.json.
func readProcessor(ctx context.Context, src files) ([]byte, error) {
	for _, name := range processors {
		if !src.has(name) {
			continue
		}
		data, err := src.read(ctx, name, maxJSON)
		if err != nil {
			return nil, err
		}
		var outer struct {
			Images json.RawMessage `json:"image_processor"`
		}
		if name == processors[0] || json.Unmarshal(data, &outer) == nil && len(outer.Images) > 0 {
			return data, nil
		}
	}
	return nil, errMissing(src, []string{processors[0]}, languageHint)
}

func (in *Installer) addTower(ctx context.Context, c *candidate, src files, config []byte, shards []string) error {
	processor, err := readProcessor(ctx, src)
	if err != nil {
		return err
	}
	if err := in.check().Processor(processor); err != nil {
		return err
	}
	if len(shards) == 0 {
		return fmt.Errorf("%s has no vision tower%s", src.source().Repo, languageHint)
	}
	if err := in.check().Tower(config, c.plan); err != nil {
		return err
	}
	c.vision = Safetensors
	c.add("vision/config.json", src, "config.json")
	return c.addShards("vision/", src, shards)
}

func (in *Installer) addTokenizer(ctx context.Context, c *candidate, src files) error {
	s := &tokenizer.Snapshot{Name: src.source().Repo}
	for _, name := range tokenizerFiles {
		if !src.has(name) {
			continue
		}
		c.add("tokenizer/"+name, src, name)
		var into *[]byte
		switch name {
		case "tokenizer.json":
			into = &s.Tokenizer
		case "tokenizer_config.json":
			into = &s.Config
		case "special_tokens_map.json":
			into = &s.SpecialTokensMap
		case "chat_template.jinja":
			into = &s.ChatTemplate
		default:
			continue
		}
		data, err := src.read(ctx, name, maxTokenizer)
		if err != nil {
			return err
		}
		*into = data
	}
	return in.check().Tokenizer(s)
}

// shards are a checkpoint's files: those that hold a tensor outside the vision tower, and those that hold one of it.
type shards struct{ target, tower []string }

// readShards tells a checkpoint's files apart by its index, or by the header of its one file.
func readShards(ctx context.Context, src files) (shards, error) {
	var s shards
	switch {
	case src.has(indexFile):
		data, err := src.read(ctx, indexFile, safetensors.MaxIndex)
		if err != nil {
			return s, err
		}
		index, err := safetensors.ReadIndex(bytes.NewReader(data), indexFile)
		if err != nil {
			return s, err
		}
		target, tower := map[string]bool{}, map[string]bool{}
		for tensor, file := range index {
			if isTower(tensor) {
				tower[file] = true
			} else {
				target[file] = true
			}
		}
		s = shards{slices.Sorted(maps.Keys(target)), slices.Sorted(maps.Keys(tower))}
	case src.has("model.safetensors"):
		s.target = []string{"model.safetensors"}
		tower, err := holdsTower(ctx, src, "model.safetensors")
		if err != nil {
			return s, err
		}
		if tower {
			s.tower = s.target
		}
	default:
		return s, errors.New("model has no safetensors checkpoint")
	}
	for _, name := range slices.Concat(s.target, s.tower) {
		if !src.has(name) || !strings.HasSuffix(name, ".safetensors") {
			return s, fmt.Errorf("checkpoint has missing or unsupported shards: %s", name)
		}
	}
	return s, nil
}

// addShards links shards side by side, those of subfolders too.
func (c *candidate) addShards(folder string, src files, names []string) error {
	for _, name := range names {
		path := folder + strings.ReplaceAll(name, "/", "-")
		if other, ok := c.links[path]; ok {
			return fmt.Errorf("checkpoint has missing or unsupported shards: %s and %s", other.name, name)
		}
		c.add(path, src, name)
	}
	return checkPaths(c.links)
}

// inspectDraft checks a draft against its target: its configuration, and which files hold its weights.
func (in *Installer) inspectDraft(
	ctx context.Context, src files, target *planner.Plan,
) (map[string]link, *planner.Draft, error) {
	lacks := func(err error) error {
		return fmt.Errorf("%s does not contain a DFlash2 checkpoint for %s (%w)", src.source().Repo, target.Family.Name, err)
	}
	if !src.has("config.json") {
		return nil, nil, lacks(errors.New("no config.json"))
	}
	config, err := src.read(ctx, "config.json", maxJSON)
	if err != nil {
		return nil, nil, err
	}
	draft, err := in.check().Draft(config, target)
	if err != nil {
		return nil, nil, fmt.Errorf("draft configuration is incompatible with %s: %w", target.Family.Name, err)
	}
	names, err := draftWeights(ctx, src)
	if err != nil {
		return nil, nil, lacks(err)
	}
	links := map[string]link{}
	for _, name := range append(names, "config.json") {
		links["draft/"+name] = link{src, name}
	}
	if err := checkPaths(links); err != nil {
		return nil, nil, err
	}
	return links, draft, nil
}

// maskFile holds the embedding of a draft's mask token, where the release ships it.
const maskFile = "mask_embedding.safetensors"

// draftWeights are the files of a draft beside its configuration.
func draftWeights(ctx context.Context, src files) ([]string, error) {
	names := []string{"model.safetensors"}
	if src.has(indexFile) {
		data, err := src.read(ctx, indexFile, safetensors.MaxIndex)
		if err != nil {
			return nil, err
		}
		index, err := safetensors.ReadIndex(bytes.NewReader(data), indexFile)
		if err != nil {
			return nil, err
		}
		names = index.Files()
	} else if !src.has(names[0]) {
		return nil, errors.New("model has no safetensors checkpoint")
	}
	for _, name := range names {
		if !src.has(name) || strings.Contains(name, "/") {
			return nil, fmt.Errorf("checkpoint has missing or unsupported shards: %s", name)
		}
	}
	if src.has(indexFile) {
		names = append(names, indexFile)
	}
	if src.has(maskFile) && !slices.Contains(names, maskFile) {
		names = append(names, maskFile)
	}
	return names, nil
}
