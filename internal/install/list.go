package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"splash/internal/hub"
	"splash/planner"
)

// An Installation is one that is there.
type Installation struct {
	Link   string // of the selection
	Record Record
	Bytes  int64 // of its files
	Fault  error // why it does not verify; nil: it does
}

// List lists the installations, by model.
func (in *Installer) List() ([]Installation, error) {
	links, err := in.store().links()
	if err != nil {
		return nil, err
	}
	var all []Installation
	for rel := range links {
		link := in.store().link(rel)
		r, err := readRecord(link)
		if err != nil {
			continue // a link of something else
		}
		i := Installation{Link: link, Record: *r}
		_, i.Fault = verify(link)
		seen := map[string]bool{}
		for _, f := range r.Files {
			if !seen[f.Path] {
				seen[f.Path] = true
				i.Bytes += f.Bytes
			}
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Installation) int {
		return strings.Compare(a.Record.Model+"\x00"+a.Link, b.Record.Model+"\x00"+b.Link)
	})
	return all, nil
}

// Verify computes the digest of every file of an installation anew.
func (in *Installer) Verify(ctx context.Context, i Installation) error {
	_, err := verifyContent(ctx, i.Link)
	return err
}

// Remove removes the installations of a model: their links, what no other installation uses of the models directory, and
// with files also the snapshots in the Hub cache that no other installation has pinned. A model that a process serves is
// not removed. It returns how many installations there were and the bytes that the cache gave back.
func (in *Installer) Remove(ctx context.Context, model string, files bool) (removed int, freed int64, err error) {
	lock, err := in.lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer lock.Unlock()
	all, err := in.List()
	if err != nil {
		return 0, 0, err
	}
	all = slices.DeleteFunc(all, func(i Installation) bool { return i.Record.Model != model })
	for _, i := range all {
		if real, err := filepath.EvalSymlinks(i.Link); err == nil && held(real) {
			return 0, 0, fmt.Errorf("%s is being served; stop its server first", model)
		}
	}
	var pins []pin
	for _, i := range all {
		if err := os.Remove(i.Link); err != nil {
			return removed, 0, err
		}
		removed++
		pins = append(pins, i.Record.pins()...)
		in.retirePins(in.rel(i.Link), nil, &i.Record)
	}
	os.Remove(filepath.Dir(in.store().link(model))) // the owner's folder, where it is empty now
	if err := in.store().collect(); err != nil {
		return removed, 0, err
	}
	if !files {
		return removed, 0, nil
	}
	for _, p := range pins {
		n, err := p.cache.Remove(p.repo, p.commit)
		freed += n
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, freed, err
		}
	}
	return removed, freed, nil
}

func (in *Installer) rel(link string) string {
	rel, err := filepath.Rel(in.Models, link)
	if err != nil {
		return link
	}
	return rel
}

// A Report is what the check found of a model that is not installed, or is.
type Report struct {
	Model    string
	Plan     *planner.Plan
	Format   string // GGUF or Safetensors
	Vision   string // NoVision, GGUF or Safetensors
	Source   Source
	Files    []ReportFile // of the target, its vision and its draft
	Download int64        // bytes of them that are not here
	Draft    *planner.Draft
	DraftOf  *Source // where the draft is from; nil: none
	Notes    []string
}

// A ReportFile is a file of a Report.
type ReportFile struct {
	Name  string
	Bytes int64
}

// Inspect checks a selection as Install does, and downloads no weight file.
func (in *Installer) Inspect(ctx context.Context, sel Selection) (*Report, error) {
	a := &start{Selection: sel, rel: sel.link()}
	target, err := in.resolve(ctx, a, sel.Model.Repo, sel.Revision, "", "")
	if err != nil {
		return nil, err
	}
	r := &Report{Model: sel.Model.String(), Source: target.source}
	if target.why != "" {
		r.Notes = append(r.Notes,
			fmt.Sprintf("Could not reach the Hub (%s); checking %s from the Hub cache.", target.why, target.source))
	}
	if err := refusePackage(ctx, target.files, r.Model); err != nil {
		return nil, err
	}
	c, err := in.inspect(ctx, target.files, sel.Model.Variant, sel.LanguageOnly)
	if err != nil {
		return nil, err
	}
	draft, err := in.resolveDraft(ctx, a, c.plan.Family, target)
	if err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, c.notes...)
	var from files
	if draft != nil {
		from = draft.files
	}
	if err := in.report(ctx, r, c, from); err != nil {
		return nil, err
	}
	return r, nil
}

// InspectLocal checks local files as PrepareLocal does, and links nothing.
func (in *Installer) InspectLocal(ctx context.Context, target string, opt LocalOptions) (*Report, error) {
	if err := makeAbsolute(&target, &opt.Draft, &opt.MMProj); err != nil {
		return nil, err
	}
	c, err := in.inspectLocal(ctx, target, opt)
	if err != nil {
		return nil, modelError(target, err)
	}
	draft, err := in.localDraft(opt, c.plan.Family.Draft)
	if err != nil {
		return nil, err
	}
	r := &Report{Model: target, Source: Source{Repo: target}}
	if err := in.report(ctx, r, c, draft); err != nil {
		return nil, modelError(draft.source().String(), err)
	}
	return r, nil
}

// report completes a report with the candidate's facts and its draft's.
func (in *Installer) report(ctx context.Context, r *Report, c *candidate, draft files) error {
	r.Plan, r.Format, r.Vision = c.plan, c.format, c.vision
	in.reportFiles(r, c.links)
	if draft == nil {
		return nil
	}
	links, plan, err := in.inspectDraft(ctx, draft, c.plan)
	if err != nil {
		return err
	}
	source := draft.source()
	r.Draft, r.DraftOf = plan, &source
	in.reportFiles(r, links)
	return nil
}

func (in *Installer) reportFiles(r *Report, links map[string]link) {
	seen := map[link]bool{}
	start := len(r.Files)
	for _, l := range links {
		if seen[l] {
			continue
		}
		seen[l] = true
		r.Files = append(r.Files, ReportFile{l.name, l.from.size(l.name)})
		if h, ok := l.from.(*hubFiles); ok {
			_, left := in.Hub.Missing(h.model, []hub.File{h.index[l.name]})
			r.Download += left
		}
	}
	slices.SortFunc(r.Files[start:], func(a, b ReportFile) int { return strings.Compare(a.Name, b.Name) })
}
