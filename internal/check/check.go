// Package check says what a model on disk is, from its metadata alone: its family and formats, what it takes, or every
// reason why it cannot be served. It reads no weight.
package check

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/safetensors"
	"splash/planner"
)

// Options say what is checked beside a target.
type Options struct {
	Draft        string // directory of a draft; "" none
	Projector    string // GGUF vision projector; "" none
	LanguageOnly bool   // a safetensors target's tower is not looked at
	HeaderOnly   bool   // GGUF files are headers without the data behind them
}

// A File is one file of the target.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// A Report is what a model that can be served is.
type Report struct {
	Family       string           `json:"family"`
	TargetFormat string           `json:"target_format"` // "gguf" or "safetensors"
	VisionFormat string           `json:"vision_format"` // "gguf", "safetensors" or "none"
	ChatFormat   string           `json:"chat_format"`
	Layers       int              `json:"layers"`
	Context      int              `json:"context"`
	Experts      *int             `json:"experts"` // routed experts a layer; null for a dense model
	Files        []File           `json:"files"`
	FileBytes    int64            `json:"file_bytes"`
	ImageBytes   int64            `json:"image_bytes"`
	Formats      map[string]int64 `json:"formats"` // bytes of the network's tensors by format, in the file
	Roles        []RoleFormats    `json:"roles"`
	Draft        *Draft           `json:"draft"`
	Warnings     []string         `json:"warnings"`

	Plan *planner.Plan `json:"-"`
}

// RoleFormats are the formats of the tensors of a role.
type RoleFormats struct {
	Role    string   `json:"role"`
	Formats []string `json:"formats"`
	Tensors int      `json:"tensors"`
}

// A Draft is the draft that was checked.
type Draft struct {
	Repo       string `json:"repo,omitempty"` // of the Hub
	Layers     int    `json:"layers"`
	Block      int    `json:"block"`
	Taps       []int  `json:"taps"`
	Bytes      int64  `json:"bytes,omitempty"`
	ImageBytes int64  `json:"image_bytes,omitempty"` // of a draft on disk
}

// Model checks the model at path: a GGUF file, any part of a split one, or a directory that holds a GGUF target or a
// safetensors checkpoint.
func Model(path string, o Options) (*Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r := &Report{VisionFormat: "none", Warnings: []string{}}
	if info.IsDir() && exists(filepath.Join(path, "config.json")) && !holdsGGUF(path) {
		err = r.checkpoint(path, o)
	} else {
		err = r.gguf(path, o)
	}
	if err != nil {
		return nil, err
	}
	if err := r.describe(); err != nil {
		return nil, err
	}
	if o.Draft != "" {
		if err := r.draft(o.Draft); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Draft, err)
		}
	}
	return r, nil
}

// Plan reports what a plan says of a model whose files are elsewhere. The plan of a configuration has no tensors, and its
// report no formats and no image.
func Plan(p *planner.Plan, files []File) (*Report, error) {
	r := &Report{VisionFormat: "none", Warnings: []string{}, Files: files, Plan: p}
	if err := r.describe(); err != nil {
		return nil, err
	}
	return r, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func holdsGGUF(dir string) bool {
	names, _ := filepath.Glob(filepath.Join(dir, "*.gguf"))
	for _, name := range names {
		if !gguf.IsProjector(filepath.Base(name)) {
			return true
		}
	}
	return false
}

// headers reads the headers of the files, without their data.
func headers(paths []string, o Options) ([]*gguf.Header, []File, error) {
	var all []*gguf.Header
	var files []File
	for _, path := range paths {
		f, info, err := openFile(path)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		h, err := gguf.Options{SkipTokenizer: true, HeaderOnly: o.HeaderOnly}.Parse(f, info.Size(), path)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, h)
		files = append(files, File{filepath.Base(path), info.Size()})
	}
	return all, files, nil
}

// openFile opens a regular file. What is none is not opened: that waits where it is a pipe.
func openFile(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func (r *Report) gguf(path string, o Options) error {
	paths, err := gguf.FindTarget(path)
	if err != nil {
		return err
	}
	all, files, err := headers(paths, o)
	if err != nil {
		return err
	}
	h, err := gguf.Join(all)
	if err != nil {
		return err
	}
	r.Files = files
	if err := planner.RequireQuantized(h); err != nil {
		r.Warnings = append(r.Warnings, "the installer refuses it: "+err.Error())
	}
	if r.Plan, err = planner.PlanGGUF(h); err != nil {
		return fmt.Errorf("%s: %w", paths[0], err)
	}
	if o.Projector == "" {
		return nil
	}
	return r.projector(o.Projector, o)
}

func (r *Report) projector(path string, o Options) error {
	family := r.Plan.Family
	if family.Vision == nil {
		return fmt.Errorf("%s: %s has no vision tower; leave the projector out", path, family.Name)
	}
	all, files, err := headers([]string{path}, o)
	if err != nil {
		return err
	}
	if _, err := planner.PlanProjector(all[0], family.Vision); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.VisionFormat, r.Files = "gguf", append(r.Files, files...)
	return nil
}

func (r *Report) checkpoint(dir string, o Options) error {
	if o.Projector != "" {
		return fmt.Errorf("%s: a projector belongs to a GGUF; a safetensors target has its own tower", o.Projector)
	}
	config, err := readConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	if _, err := planner.CheckConfig(config); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	open := safetensors.OpenDir
	if exists(filepath.Join(dir, "model.safetensors.index.json")) {
		open = func(dir string) (*safetensors.Checkpoint, error) { return safetensors.OpenIndexed(dir) }
	}
	c, err := open(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	if r.Plan, err = planner.PlanSafetensors(config, c); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	for _, f := range c.Files {
		r.Files = append(r.Files, File{filepath.Base(f.Name), f.Size})
	}
	return r.tower(dir, config, c, o)
}

// tower checks the vision tower of a checkpoint that has one.
func (r *Report) tower(dir string, config []byte, c *safetensors.Checkpoint, o Options) error {
	v := r.Plan.Family.Vision
	if v == nil || o.LanguageOnly || !strings.Contains(string(config), `"vision_config"`) {
		return nil
	}
	if err := planner.CheckVisionConfig(config, v); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if _, err := planner.PlanTower(c, v); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	r.VisionFormat = "safetensors"
	return nil
}

// maxConfig bounds a config.json.
const maxConfig = 1 << 20

func readConfig(path string) ([]byte, error) {
	f, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxConfig)
	}
	return data, nil
}

func (r *Report) describe() error {
	p := r.Plan
	r.Family, r.TargetFormat, r.ChatFormat = p.Family.Name, p.Format, p.Family.Chat
	r.Layers, r.Context = p.Layout.Layers, p.Layout.Context
	if e := p.Layout.MoE.Experts; e > 0 {
		r.Experts = &e
	}
	for _, f := range r.Files {
		r.FileBytes += f.Bytes
	}
	r.Formats, r.Roles = map[string]int64{}, []RoleFormats{}
	for i := range p.Tensors {
		t := &p.Tensors[i]
		r.Formats[t.Type.String()] += stored(t)
		r.role(t)
	}
	if len(p.Tensors) == 0 {
		return nil
	}
	images, err := planner.PlanImages(p)
	if err != nil {
		r.Warnings = append(r.Warnings, "it has no weight images, so only backends that read its blocks in place serve it: "+err.Error())
		return nil
	}
	r.ImageBytes = images.Size()
	return nil
}

// stored is a tensor's bytes in the file, its scales included where its blocks hold them.
func stored(t *planner.Tensor) int64 {
	f := dequant.Lookup(t.Type)
	return int64(t.Rows) * int64(max(t.Experts, 1)) * int64(f.RowBytes(t.Cols))
}

func (r *Report) role(t *planner.Tensor) {
	name := t.Role.String()
	for i := range r.Roles {
		if x := &r.Roles[i]; x.Role == name {
			x.add(t)
			return
		}
	}
	r.Roles = append(r.Roles, RoleFormats{Role: name})
	r.Roles[len(r.Roles)-1].add(t)
}

func (x *RoleFormats) add(t *planner.Tensor) {
	x.Tensors++
	name := t.Type.String()
	for _, f := range x.Formats {
		if f == name {
			return
		}
	}
	x.Formats = append(x.Formats, name)
}

func (r *Report) draft(dir string) error {
	config, err := readConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	d, err := planner.PlanDraft(config, r.Plan)
	if err != nil {
		return err
	}
	c, err := planner.OpenDraft(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	tensors, err := planner.PlanDraftTensors(d, c)
	if err != nil {
		return err
	}
	images, err := planner.PlanDraftImages(d.Layers, tensors)
	if err != nil {
		return err
	}
	r.Draft = &Draft{Layers: d.Layers, Block: d.Block, Taps: d.Taps, ImageBytes: images.Size()}
	for _, f := range c.Files {
		r.Draft.Bytes += f.Size
	}
	return nil
}
