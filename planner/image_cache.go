package planner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Files of an image directory beside the images.
const (
	manifestName  = "manifest.json"
	lockName      = "lock"
	partialSuffix = ".partial" // an image being written
	journalSuffix = ".journal" // how much of it lasts on the disk
)

// Limits of the files that are read back.
const (
	maxManifest = 1 << 20
	maxJournal  = 4 << 10
)

// batchJobs is the number of jobs after which an image's bytes are made to last and the journal says so.
const batchJobs = 64

// An ImageSource identifies a file that weights come from: by what the file system knows of it, and by the digest of its
// header, which decides how the rest of it is read.
type ImageSource struct {
	Path        string `json:"path"` // where it was found; not part of its identity
	Device      uint64 `json:"device"`
	Inode       uint64 `json:"inode"`
	Size        int64  `json:"size"`
	Modified    int64  `json:"mtime_ns"`
	Changed     int64  `json:"ctime_ns"`
	HeaderBytes int64  `json:"header_bytes"`
	Header      string `json:"header_sha256"`
}

// IdentifyImageSource identifies the file at path, whose header is its first so many bytes.
func IdentifyImageSource(path string, header int64) (ImageSource, error) {
	f, err := os.Open(path)
	if err != nil {
		return ImageSource{}, err
	}
	defer f.Close()
	s := ImageSource{Path: path, HeaderBytes: header}
	if err := s.identify(f); err != nil {
		return ImageSource{}, fmt.Errorf("identify %s: %w", path, err)
	}
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, header)); err != nil {
		return ImageSource{}, fmt.Errorf("read %s: %w", path, err)
	} else if n != header {
		return ImageSource{}, fmt.Errorf("%s: truncated at byte %d of a header of %d", path, n, header)
	}
	s.Header = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// same reports whether two sources are one file, unchanged.
func (s ImageSource) same(o ImageSource) bool {
	s.Path, o.Path = "", ""
	return s == o
}

// unchanged fails when the file at the source's path is no longer that source, as far as the file system knows.
func (s ImageSource) unchanged() error {
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	now := s
	if err := now.identify(f); err != nil {
		return fmt.Errorf("identify %s: %w", s.Path, err)
	}
	if now != s {
		return fmt.Errorf("%s changed while its weights were read", s.Path)
	}
	return nil
}

// A manifest says what the images of a directory are made of.
type manifest struct {
	Format  string        `json:"format"`
	Plan    string        `json:"plan_sha256"`
	Sources []ImageSource `json:"sources"`
}

// same reports whether images of one manifest serve for the other.
func (m *manifest) same(o *manifest) bool {
	return m.Format == o.Format && m.Plan == o.Plan && slices.EqualFunc(m.Sources, o.Sources, ImageSource.same)
}

// parseManifest reads a manifest; anything else is an error that has the images made anew.
func parseManifest(b []byte) (*manifest, error) {
	m := new(manifest)
	if len(b) > maxManifest {
		return nil, fmt.Errorf("a manifest of %d bytes, at most %d", len(b), maxManifest)
	}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, err
	}
	return m, nil
}

// A journal says how many jobs of an image being written last on the disk.
type journal struct {
	Key  string `json:"key"`
	Jobs int    `json:"jobs"` // of the whole image
	Done int    `json:"done"` // the first so many
}

// parseJournal reads the journal of an image of so many jobs and returns those done, 0 where it is another's or damaged.
func parseJournal(b []byte, key string, jobs int) int {
	var j journal
	if len(b) > maxJournal || json.Unmarshal(b, &j) != nil {
		return 0
	}
	if j.Key != key || j.Jobs != jobs || j.Done < 0 || j.Done > jobs {
		return 0
	}
	return j.Done
}

// ImageProgress is the state of images being made.
type ImageProgress struct {
	Image       string // the image at hand
	Done, Total int64  // bytes of all images
	Waiting     bool   // another process makes images in the directory
}

// MakeImages makes every image of the plan in dir that is not there already; a directory holds the images of one target or
// of one draft. Images of other weights, or of a source that
// has changed since, are removed first; a manifest in dir says which weights they are of. An image appears under its name
// when it is whole and lasts on the disk; what an interrupted run wrote is continued. One process at a time makes images
// in a directory, others wait for it. The writer's memory does not depend on the weights. Progress, unless nil, is called
// as bytes are written, one call at a time. An error leaves the images that are whole.
func MakeImages(ctx context.Context, dir string, plan *ImagePlan, w Weights, sources []ImageSource,
	progress func(ImageProgress)) error {
	k := &ImageMaker{Progress: progress}
	return k.Make(ctx, dir, plan, w, sources)
}

// An imageDir is a directory of images in the making.
type imageDir struct {
	path     string
	plan     *ImagePlan
	manifest manifest
	progress func(ImageProgress)
	packer   Packer // nil: the writer
	done     int64  // bytes
	jobBytes int
	batch    int // jobs
}

func newImageDir(path string, plan *ImagePlan, sources []ImageSource) *imageDir {
	return &imageDir{
		path: path, plan: plan, progress: func(ImageProgress) {}, jobBytes: jobBytes, batch: batchJobs,
		manifest: manifest{Format: imageMagic, Plan: plan.Digest(), Sources: sources},
	}
}

// key names in journals what an image is of, and how its jobs are cut.
func (d *imageDir) key() string {
	h := sha256.New()
	fmt.Fprintln(h, d.manifest.Format, d.manifest.Plan, d.jobBytes)
	for _, s := range d.manifest.Sources {
		s.Path = ""
		fmt.Fprintf(h, "%+v\n", s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (d *imageDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *imageDir) report(m *Image, bytes int64) {
	d.done += bytes
	d.progress(ImageProgress{Image: m.Name, Done: d.done, Total: d.plan.Size()})
}

func (d *imageDir) make(ctx context.Context, w Weights) (err error) {
	if err := os.MkdirAll(d.path, 0o777); err != nil {
		return err
	}
	waiting := func() { d.progress(ImageProgress{Total: d.plan.Size(), Waiting: true}) }
	lock, err := lockFile(ctx, d.file(lockName), true, waiting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := d.checkSources(); err != nil {
		return err
	}
	if err := d.claim(); err != nil {
		return err
	}
	for i := range d.plan.Images {
		if err := d.image(ctx, &d.plan.Images[i], w); err != nil {
			return fmt.Errorf("%s: %w", d.plan.Images[i].Name, err)
		}
	}
	return nil
}

func (d *imageDir) checkSources() error {
	for _, s := range d.manifest.Sources {
		if err := s.unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// imageNames are the files that a directory of images may hold beside its manifest and lock.
var imageNames = regexp.MustCompile(`^(layer-[0-9]+|head|embedding|ple|model)\.bin(\.partial|\.journal(\.new)?)?$`)

// claim makes the directory one of the manifest at hand: images of another are removed before their manifest is.
func (d *imageDir) claim() error {
	b, err := readLimited(d.file(manifestName), maxManifest)
	if err == nil {
		if m, err := parseManifest(b); err == nil && m.same(&d.manifest) {
			return nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && imageNames.MatchString(e.Name()) {
			if err := os.Remove(d.file(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := syncDir(d.path); err != nil {
		return err
	}
	b, err = json.MarshalIndent(&d.manifest, "", "  ")
	if err != nil {
		return err
	}
	return d.replace(manifestName, append(b, '\n'))
}

// image makes one image unless it is there.
func (d *imageDir) image(ctx context.Context, m *Image, w Weights) error {
	if d.whole(m) {
		d.report(m, m.Size)
		return d.removeLeftovers(m)
	}
	before := d.done
	f, err := os.OpenFile(d.file(m.Name+partialSuffix), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = d.fill(ctx, f, m, w)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = d.checkSources()
	}
	if err != nil {
		return err
	}
	if err := d.publish(m); err != nil {
		return err
	}
	d.report(m, before+m.Size-d.done) // the header, the descriptors and the space between sections
	return nil
}

// whole reports whether an image is there.
func (d *imageDir) whole(m *Image) bool {
	f, err := os.Open(d.file(m.Name))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && CheckImage(f, info.Size(), m) == nil
}

// fill writes what a partial image lacks, and makes it last.
func (d *imageDir) fill(ctx context.Context, f *os.File, m *Image, w Weights) error {
	jobs := m.jobs(d.jobBytes)
	first, err := d.resume(f, m, jobs)
	if err != nil {
		return err
	}
	iw, err := newImageWriter(m, w, f)
	if err != nil {
		return err
	}
	iw.packer = d.packer
	if err := iw.frame(); err != nil {
		return err
	}
	for _, j := range jobs[:first] {
		d.report(m, m.jobSize(j))
	}
	for first < len(jobs) {
		last := min(first+d.batch, len(jobs))
		if err := iw.run(ctx, jobs[first:last], func(n int64) { d.report(m, n) }); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := d.log(m, journal{Key: d.key(), Jobs: len(jobs), Done: last}); err != nil {
			return err
		}
		first = last
	}
	return f.Sync()
}

// resume returns the number of jobs that a partial image has behind it. One of unknown state starts over, as zeros.
func (d *imageDir) resume(f *os.File, m *Image, jobs []job) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() == m.Size {
		if b, err := readLimited(d.file(m.Name+journalSuffix), maxJournal); err == nil {
			if done := parseJournal(b, d.key(), len(jobs)); done > 0 {
				return done, nil
			}
		}
	}
	if err := f.Truncate(0); err != nil {
		return 0, err
	}
	return 0, f.Truncate(m.Size)
}

// log replaces the journal of an image.
func (d *imageDir) log(m *Image, j journal) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return d.replace(m.Name+journalSuffix, b)
}

// publish gives a whole image its name.
func (d *imageDir) publish(m *Image) error {
	if err := os.Rename(d.file(m.Name+partialSuffix), d.file(m.Name)); err != nil {
		return err
	}
	if err := syncDir(d.path); err != nil {
		return err
	}
	return d.removeLeftovers(m)
}

// removeLeftovers removes what was needed to make a whole image.
func (d *imageDir) removeLeftovers(m *Image) error {
	for _, suffix := range []string{partialSuffix, journalSuffix} {
		if err := os.Remove(d.file(m.Name + suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// replace writes a small file whole or not at all.
func (d *imageDir) replace(name string, b []byte) error {
	temporary := d.file(name + ".new")
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temporary, d.file(name))
	}
	if err != nil {
		return err
	}
	return syncDir(d.path)
}

// readLimited reads a small file.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// Images are the mapped images of a target or draft.
type Images struct{ Files []*ImageFile } // in the plan's order

// OpenImages maps the images of a plan in dir, which must be whole and of these sources.
func OpenImages(ctx context.Context, dir string, plan *ImagePlan, sources []ImageSource) (*Images, error) {
	d := newImageDir(dir, plan, sources)
	lock, err := lockFile(ctx, d.file(lockName), false, nil)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	b, err := readLimited(d.file(manifestName), maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.file(manifestName), err)
	}
	if !m.same(&d.manifest) {
		return nil, fmt.Errorf("%s: its images are of other weights", dir)
	}
	images := new(Images)
	for i := range plan.Images {
		f, err := OpenImage(d.file(plan.Images[i].Name), &plan.Images[i])
		if err != nil {
			return nil, errors.Join(err, images.Close())
		}
		images.Files = append(images.Files, f)
	}
	return images, nil
}

// Image returns the mapped image of that file name, or nil.
func (s *Images) Image(name string) *ImageFile {
	for _, f := range s.Files {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Close gives the memory of every image back.
func (s *Images) Close() error {
	var errs []error
	for _, f := range s.Files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
