package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"splash/internal/hub"
	"splash/planner"
)

// A resolved is a source at the commit that its revision names now.
type resolved struct {
	source Source
	files  files  // nil where an installation stands in, whose links name its files
	why    string // the Hub did not answer, and something stands in
}

// answered reports whether the Hub told the commit.
func (r *resolved) answered() bool { return r.files != nil && r.why == "" }

// A start is the selection whose installation is being started: its link, and its verified record, if there is one.
type start struct {
	Selection
	rel       string
	installed *Record
}

func (a *start) commit() string {
	if a.installed == nil {
		return ""
	}
	return a.installed.Sources.Target.Commit()
}

// Install starts a selection: it follows the revision of the target and then of its draft, with one request each, installs
// what moved, and returns the assembly, held. The installed assembly starts where the Hub does not answer, or where a new
// commit cannot be installed.
func (in *Installer) Install(ctx context.Context, sel Selection) (*Installed, error) {
	if lower := strings.ToLower(sel.Revision); hub.IsCommit(lower) {
		sel.Revision = lower
	}
	a := &start{Selection: sel, rel: sel.link()}
	link := in.store().link(a.rel)
	if err := installedPackage(sel.Model.String(), link); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(link); err == nil {
		if a.installed, err = verify(link); err != nil {
			a.installed = nil
			in.logf("Reinstalling %s: %v", sel.Model, err)
		}
	}
	target, err := in.resolve(ctx, a, sel.Model.Repo, sel.Revision, a.commit(), "")
	if err != nil {
		return nil, err
	}
	if a.installed != nil && target.source.Commit() == a.commit() {
		return in.startInstalled(ctx, a, target)
	}
	return in.installCommit(ctx, a, target)
}

// resolve finds the commit that a revision names now. It decides whether the Hub is asked: a commit never moves, and
// offline no request is made, so with either the installed commit stands. unreachable is why the Hub did not answer for
// another repository of this start. Where it does not answer, the installed commit stands in, or a commit in the cache that
// this selection already names; never another revision.
func (in *Installer) resolve(
	ctx context.Context, a *start, repo, revision, installed, unreachable string,
) (*resolved, error) {
	if filepath.IsAbs(repo) {
		dir, err := newDirFiles(repo)
		if err != nil {
			return nil, fmt.Errorf("local draft directory: %w", err)
		}
		return &resolved{source: dir.source(), files: dir}, nil
	}
	stand := &resolved{source: Source{repo, &installed}}
	if installed != "" && (in.Hub.Offline || hub.IsCommit(revision)) {
		return stand, nil
	}
	why := unreachable
	if why == "" {
		m, err := in.Hub.Model(ctx, repo, revision)
		if err == nil {
			return &resolved{source: Source{repo, &m.Commit}, files: newHubFiles(in.Hub, m)}, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		why = in.Hub.Reason(err)
	}
	stand.why = why
	if installed != "" {
		return stand, nil
	}
	commits := in.cachedCommits(a, repo, revision)
	for _, commit := range commits {
		if m, err := in.Hub.Cache.Model(repo, commit); err == nil && len(m.Files) > 0 {
			return &resolved{source: Source{repo, &commit}, files: newHubFiles(in.Hub, m), why: why}, nil
		}
	}
	cache := "the Hub cache has no snapshot of " + strings.Join(commits, ", ")
	if len(commits) == 0 {
		cache = "neither this installation nor the Hub cache records a commit for the default branch"
		if revision != "" {
			cache = "neither this installation nor the Hub cache records a commit for " + revision
		}
	}
	return nil, fmt.Errorf("cannot resolve %s: %s; %s", repo, why, cache)
}

// cachedCommits lists the commits of a repository that may stand in for a revision, the most specific first: the revision
// itself; the commit that the installation recorded, damaged as it may be, and those it pinned; the one that the cache
// recorded for the branch or tag.
func (in *Installer) cachedCommits(a *start, repo, revision string) []string {
	if hub.IsCommit(revision) {
		return []string{revision}
	}
	var commits []string
	link := in.store().link(a.rel)
	if r, err := readRecord(link); err == nil {
		for _, s := range []*Source{&r.Sources.Target, r.Sources.Draft} {
			if s != nil && s.Repo == repo && s.Revision != nil {
				commits = append(commits, *s.Revision)
			}
		}
	}
	commits = append(commits, in.Hub.Cache.Pins(repo, pinOwner(link))...)
	if revision == "" {
		revision = "main"
	}
	if commit := in.Hub.Cache.Ref(repo, revision); commit != "" {
		commits = append(commits, commit)
	}
	var once []string
	for _, c := range commits {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	return once
}

// startInstalled starts the verified installation of the target's commit, assembled again first where its draft moved or
// this release assembles it otherwise. The draft is asked for only where the Hub answered for the target, so a revision
// that is a commit holds its draft too.
func (in *Installer) startInstalled(ctx context.Context, a *start, target *resolved) (*Installed, error) {
	if target.why != "" {
		in.logf("Could not reach the Hub (%s); using the installed %s.", target.why, target.source)
	}
	family := planner.FamilyByName(a.installed.Family)
	var draft *resolved
	if family != nil {
		var err error
		if draft, err = in.resolveDraft(ctx, a, family, target); err != nil {
			return nil, err
		}
		if draft != nil && draft.why != "" {
			in.logf("Could not reach the Hub (%s); using the installed draft %s.", draft.why, draft.source)
		}
	}
	changes := changes(a.installed, family, draft)
	if len(changes) == 0 {
		installed, err := in.retain(ctx, a)
		if err == nil {
			in.logf("Splash model %s is already installed in %s", a.Model, in.store().link(a.rel))
			return installed, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// Another process replaced or damaged the assembly since it was verified.
		in.logf("Reinstalling %s: %v", a.Model, err)
		a.installed = nil
		if target, err = in.listed(a, target); err != nil {
			return nil, err
		}
		return in.build(ctx, a, target, draft)
	}
	what := strings.Join(changes, "; ")
	in.logf("Updating %s: %s.", a.Model, what)
	return in.keeping(ctx, a, fmt.Sprintf("update it (%s)", what), func() (*Installed, error) {
		target, err := in.listed(a, target)
		if err != nil {
			return nil, err
		}
		return in.build(ctx, a, target, draft)
	})
}

// listed gives a source that stands in the files of its snapshot in the cache.
func (in *Installer) listed(a *start, r *resolved) (*resolved, error) {
	if r == nil || r.files != nil {
		return r, nil
	}
	m, err := in.Hub.Cache.Model(r.source.Repo, r.source.Commit())
	if err != nil {
		return nil, err
	}
	return &resolved{source: r.source, files: newHubFiles(in.Hub, m), why: r.why}, nil
}

// installCommit installs a commit of the target that this selection has not installed. A verified installation of another
// commit is kept if that fails.
func (in *Installer) installCommit(ctx context.Context, a *start, target *resolved) (*Installed, error) {
	if target.why != "" {
		in.logf("Could not reach the Hub (%s); installing %s from the Hub cache.", target.why, target.source)
	} else if a.installed != nil {
		in.logf("%s moved from %.12s to %.12s.", a.Model.Repo, a.commit(), target.source.Commit())
	}
	build := func() (*Installed, error) { return in.build(ctx, a, target, nil) }
	if a.installed == nil {
		return build()
	}
	return in.keeping(ctx, a, fmt.Sprintf("install %s@%s", a.Model.Repo, target.source.Commit()), build)
}

// keeping makes an attempt, and starts the verified installation with a line that names the attempt where it fails.
func (in *Installer) keeping(
	ctx context.Context, a *start, attempt string, try func() (*Installed, error),
) (*Installed, error) {
	installed, err := try()
	if err == nil {
		return installed, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	in.logf("Warning: keeping the installed %s; cannot %s: %s", a.installed.Sources.Target, attempt, in.Hub.Reason(err))
	kept, lost := in.retain(ctx, a)
	if lost != nil {
		return nil, err
	}
	return kept, nil
}

// retain verifies the installation again under the installation lock, where another process may have replaced it since,
// restores its pins and holds it.
func (in *Installer) retain(ctx context.Context, a *start) (*Installed, error) {
	lock, err := in.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	installed, err := in.store().hold(in.store().link(a.rel))
	if err != nil {
		return nil, err
	}
	if err := in.keepPins(a.rel, &installed.Record); err != nil {
		installed.Close()
		return nil, err
	}
	in.tidy(a.rel, &installed.Record)
	return installed, nil
}

// changes are what a start changes in a verified assembly of the target's installed commit.
func changes(installed *Record, family *planner.Family, draft *resolved) []string {
	if family == nil {
		return []string{"no supported family is named " + installed.Family}
	}
	var changes []string
	recorded := installed.Sources.Draft
	switch {
	case draft == nil && recorded != nil:
		changes = append(changes, "it has no draft now")
	case draft == nil || draft.source.equal(recorded):
	case recorded != nil && draft.source.Repo == recorded.Repo && recorded.Revision != nil:
		changes = append(changes,
			fmt.Sprintf("%s moved from %.12s to %.12s", recorded.Repo, recorded.Commit(), draft.source.Commit()))
	default:
		changes = append(changes, "its draft is now "+draft.source.String())
	}
	if installed.TargetFormat == GGUF && installed.Metadata != metadataKey(installed.Files) {
		changes = append(changes, "the GGUF metadata adapter changed")
	}
	return changes
}

// resolveDraft finds the draft that a selection wants now: its own, or the family's; nil where there is none. The installed
// draft stands in where the Hub was not asked for the target or does not answer for the draft.
func (in *Installer) resolveDraft(
	ctx context.Context, a *start, family *planner.Family, target *resolved,
) (*resolved, error) {
	name := a.Selection.Draft
	if name == "" {
		name = family.Draft
	}
	var recorded *Source
	if a.installed != nil {
		recorded = a.installed.Sources.Draft
	}
	if recorded != nil && !target.answered() {
		if recorded.Revision == nil {
			return in.resolve(ctx, a, recorded.Repo, "", "", "")
		}
		return &resolved{source: *recorded}, nil
	}
	if name == "" {
		return nil, nil
	}
	installed := ""
	if recorded != nil && recorded.Repo == name {
		installed = recorded.Commit()
	}
	unreachable := ""
	if !target.answered() {
		if unreachable = target.why; unreachable == "" {
			unreachable = "the Hub did not list the target"
		}
	}
	draft, err := in.resolve(ctx, a, name, "", installed, unreachable)
	if err != nil && recorded != nil && ctx.Err() == nil {
		return &resolved{source: *recorded, why: in.Hub.Reason(err)}, nil
	}
	return draft, err
}

// build checks a target and its draft, downloads what they lack, and publishes their assembly. draft is the draft as this
// start resolved it; nil where it is still to be.
func (in *Installer) build(ctx context.Context, a *start, target, draft *resolved) (*Installed, error) {
	installed, err := in.assemble(ctx, a, target, draft)
	if err == nil {
		return installed, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("cannot install %s: %w", a.Model, err)
}

func (in *Installer) assemble(ctx context.Context, a *start, target, draft *resolved) (*Installed, error) {
	if err := refusePackage(ctx, target.files, a.Model.String()); err != nil {
		return nil, err
	}
	c, err := in.inspect(ctx, target.files, a.Model.Variant, a.LanguageOnly)
	if err != nil {
		return nil, err
	}
	if draft == nil {
		if draft, err = in.resolveDraft(ctx, a, c.plan.Family, target); err != nil {
			return nil, err
		}
	}
	for _, note := range c.notes {
		in.logf("%s", note)
	}
	p := &publication{rel: a.rel, model: a.Model.String(), target: c, source: target.source, links: maps.Clone(c.links)}
	if err := in.addDraft(ctx, a, p, draft); err != nil {
		return nil, err
	}
	in.announce(p)
	if err := fetchLinks(ctx, c.links); err != nil {
		return nil, err
	}
	return in.publish(ctx, p)
}

// announce says what is being installed, once, before anything is downloaded.
func (in *Installer) announce(p *publication) {
	if p.announced {
		return
	}
	p.announced = true
	draft, vision := "none", "enabled"
	if p.draft != nil {
		draft = p.draft.Repo
	}
	if p.target.vision == NoVision {
		vision = "disabled"
	}
	in.logf("Installing %s as %s (%s); draft %s; vision %s.", p.model, p.target.plan.Family.Name, p.target.format, draft, vision)
}

// addDraft checks and fetches a draft. Where a new one cannot be had, the installed one is kept.
func (in *Installer) addDraft(ctx context.Context, a *start, p *publication, draft *resolved) error {
	if draft == nil {
		return nil
	}
	add := func(r *resolved) error {
		r, err := in.listed(a, r)
		if err != nil {
			return err
		}
		links, _, err := in.inspectDraft(ctx, r.files, p.target.plan)
		if err != nil {
			return err
		}
		p.draft = &r.source
		in.announce(p)
		if err := fetchLinks(ctx, links); err != nil {
			return err
		}
		maps.Copy(p.links, links)
		return nil
	}
	err := add(draft)
	if err == nil || ctx.Err() != nil || a.installed == nil {
		return err
	}
	recorded := a.installed.Sources.Draft
	if recorded == nil || draft.source.equal(recorded) {
		return err
	}
	in.logf("Warning: cannot use the %s draft %s; keeping the installed one: %s",
		p.target.plan.Family.Name, draft.source, in.Hub.Reason(err))
	kept := &resolved{source: *recorded}
	if recorded.Revision == nil {
		if kept, err = in.resolve(ctx, a, recorded.Repo, "", "", ""); err != nil {
			return err
		}
	}
	return add(kept)
}

// fetchLinks makes the files that links name local, those of each source together.
func fetchLinks(ctx context.Context, links map[string]link) error {
	wanted := map[files][]string{}
	for _, at := range slices.Sorted(maps.Keys(links)) {
		l := links[at]
		if !slices.Contains(wanted[l.from], l.name) {
			wanted[l.from] = append(wanted[l.from], l.name)
		}
	}
	var errs []error
	for src, names := range wanted {
		errs = append(errs, src.fetch(ctx, names))
	}
	return errors.Join(errs...)
}

// checkPaths refuses names that no assembly can have.
func checkPaths(links map[string]link) error {
	for _, at := range slices.Sorted(maps.Keys(links)) {
		if !plainPath(at) {
			return fmt.Errorf("unsupported file name in %s: %q", links[at].from.source().Repo, links[at].name)
		}
	}
	return nil
}
