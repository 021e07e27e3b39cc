package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldens are what Pillow makes of the fixtures (testdata/README.md).
type goldens struct {
	Sizes []struct {
		Width, Height, Most int
		ToWidth             int `json:"to_width"`
		ToHeight            int `json:"to_height"`
	}
	Resizes []struct {
		Width, Height int
		ToWidth       int `json:"to_width"`
		ToHeight      int `json:"to_height"`
		Seed          uint64
		Pixels        []byte
		SHA256        string
	}
	Files []struct {
		File          string
		Width, Height int
		Digest        string
		Means         []byte
	}
}

func readGoldens(t *testing.T) (g goldens) {
	t.Helper()
	data, err := os.ReadFile("testdata/goldens.json")
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func readFixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// noise is bytes of SplitMix64.
func noise(n int, state uint64) []byte {
	var b []byte
	for len(b) < n {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		b = binary.LittleEndian.AppendUint64(b, z^z>>31)
	}
	return b[:n]
}

func TestTargetSize(t *testing.T) {
	g := readGoldens(t)
	for _, c := range g.Sizes {
		w, h, err := targetSize(c.Width, c.Height, c.Most)
		if err != nil || w != c.ToWidth || h != c.ToHeight {
			t.Errorf("%d x %d, at most %d: %d x %d, %v; Python has %d x %d", c.Width, c.Height, c.Most, w, h, err, c.ToWidth, c.ToHeight)
		}
		if w*h > c.Most || w%factor != 0 || h%factor != 0 {
			t.Errorf("%d x %d is no size of at most %d pixels", w, h, c.Most)
		}
	}
	// The examples of models.md 9.4.
	for _, c := range [][5]int{
		{1000, 1400, 992, 1408, 1364}, {4032, 3024, 2336, 1760, 4015}, {100, 100, 256, 256, 64}, {1000, 48, 1184, 64, 74},
		{3000, 16, 3520, 32, 110}, {1920, 1080, 1920, 1088, 2040},
	} {
		w, h, err := targetSize(c[0], c[1], MaxPixels)
		if m := (&Image{GridH: h / Patch, GridW: w / Patch}); err != nil || w != c[2] || h != c[3] || m.Tokens() != c[4] {
			t.Errorf("%v: %d x %d, %d tokens, %v", c, w, h, m.Tokens(), err)
		}
	}
	for _, c := range [][2]int{{201, 1}, {1, 201}, {6433, 32}} {
		if _, _, err := targetSize(c[0], c[1], MaxPixels); err == nil || !strings.Contains(err.Error(), "aspect ratio must be smaller than 200") {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestResize(t *testing.T) {
	for _, c := range readGoldens(t).Resizes {
		rgb := noise(3*c.Width*c.Height, c.Seed)
		m := image.NewRGBA(image.Rect(0, 0, c.Width, c.Height))
		for i := range c.Width * c.Height {
			copy(m.Pix[4*i:], append(rgb[3*i:3*i+3:3*i+3], 255))
		}
		got := resize(&canvas{m}, c.ToWidth, c.ToHeight)
		if c.Pixels != nil {
			if diff := cmp.Diff(c.Pixels, got); diff != "" {
				t.Errorf("%d x %d to %d x %d: %s", c.Width, c.Height, c.ToWidth, c.ToHeight, diff)
			}
		}
		if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != c.SHA256 {
			t.Errorf("%d x %d to %d x %d: not Pillow's pixels", c.Width, c.Height, c.ToWidth, c.ToHeight)
		}
	}
}

// lossy lists the fixtures whose pixels depend on how a codec or a blend rounds.
var lossy = []string{"rgba.png", "gray-alpha.png", "photo.jpg", "progressive.jpg", "gray.jpg", "lossy.webp", "alpha.webp"}

func TestFiles(t *testing.T) {
	p := New(Options{PDF: noPDF{}})
	for _, c := range readGoldens(t).Files {
		m, err := p.prepare(t.Context(), readFixture(t, c.File))
		if err != nil {
			t.Errorf("%s: %v", c.File, err)
			continue
		}
		if m.GridW*Patch != c.Width || m.GridH*Patch != c.Height {
			t.Errorf("%s: %d x %d; Pillow has %d x %d", c.File, m.GridW*Patch, m.GridH*Patch, c.Width, c.Height)
			continue
		}
		if !slices.Contains(lossy, c.File) {
			if hex.EncodeToString(m.Digest[:]) != c.Digest {
				t.Errorf("%s: not Pillow's pixels", c.File)
			}
			continue
		}
		for i, mean := range means(m) {
			if d := mean - float64(c.Means[i]); d > 1.5 || d < -1.5 {
				t.Errorf("%s: mean %d is %.2f, Pillow's %d", c.File, i, mean, c.Means[i])
			}
		}
	}
}

// means are those of blocks of 32 x 32 pixels, channel by channel.
func means(m *Image) []float64 {
	w, h := m.GridW/2, m.GridH/2
	all := make([]float64, 3*w*h)
	for i, v := range m.Pixels {
		x, y := i/3%(factor*w), i/3/(factor*w)
		all[3*(y/factor*w+x/factor)+i%3] += float64(v) / (factor * factor)
	}
	return all
}

func url(kind string, file []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(file)
}

func TestDigest(t *testing.T) {
	m := newImage(32, 64, make([]byte, 3*32*64))
	want := sha256.Sum256(append([]byte{4, 0, 0, 0, 2, 0, 0, 0}, m.Pixels...))
	if m.Digest != want || m.GridH != 4 || m.GridW != 2 || m.Tokens() != 2 {
		t.Errorf("%+v", m)
	}
}

func TestRefused(t *testing.T) {
	p := New(Options{PDF: noPDF{}})
	wide := pngHeader(50_000, 50_000)
	for _, c := range []struct {
		name, url, want string
	}{
		{"a web address", "http://example.com/a.png", "only data: image URLs are supported"},
		{"nothing", "", "only data: image URLs are supported"},
		{"text", "data:image/png,abc", "image data URLs must be base64-encoded"},
		{"no data", "data:image/png;base64", "image could not be decoded: it is no JPEG, PNG, WebP or GIF"},
		{"no base64", "data:image/png;base64,a_b-", "image data is not valid base64"},
		{"too long", "data:image/png;base64," + strings.Repeat("A", MaxFileBytes/3*4+8), "image exceeds the size limit of 32 MiB"},
		{"another format", url("image/bmp", []byte("BM0000")), "it is no JPEG, PNG, WebP or GIF"},
		{"too many pixels", url("image/png", wide), "source image exceeds the pixel limit: 50000 x 50000, at most 33554432 pixels"},
		{"too thin", url("image/png", pngHeader(10_000, 1)), "absolute aspect ratio must be smaller than 200: the image is 10000 x 1"},
		{"nothing but a header", url("image/png", pngHeader(10, 10)), "image could not be decoded: PNG: "},
		{"half a JPEG", url("image/jpeg", readFixture(t, "photo.jpg")[:4000]), "image could not be decoded: JPEG: "},
		{"half a WebP", url("image/webp", readFixture(t, "lossy.webp")[:60]), "image could not be decoded: WebP: "},
		{"a WebP canvas of another size", url("image/webp", webpCanvas(t)), "image could not be decoded: WebP: a frame of 24 x 20 on a canvas of 1 x 1"},
		{"half a GIF", url("image/gif", readFixture(t, "animation.gif")[:300]), "image could not be decoded: GIF: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := p.Batch()
			defer b.Close()
			_, err := b.Image(t.Context(), c.url)
			fault := (*Error)(nil)
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	if s := p.Stats(); s.InFlight != 0 || s.Entries != 0 {
		t.Errorf("%+v", s)
	}
}

// pngHeader is a PNG of that size without an image.
func pngHeader(width, height uint32) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR")
	b = binary.BigEndian.AppendUint32(b, width)
	b = binary.BigEndian.AppendUint32(b, height)
	b = append(b, 8, 2, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:]))
}

// webpCanvas is a still whose extended header says 1 x 1.
func webpCanvas(t *testing.T) []byte {
	still := readFixture(t, "lossless.webp")
	out := append([]byte{}, still[:12]...)
	out = append(out, "VP8X\x0a\x00\x00\x00"+strings.Repeat("\x00", 10)...)
	riffChunks(still, func(id string, data []byte) error {
		if id == "VP8L" {
			out = append(out, id...)
			out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
			out = append(out, data...)
		}
		return nil
	})
	return out
}

func TestPartialFrame(t *testing.T) {
	// The first frame covers a part of a GIF's canvas; the rest is white.
	var out bytes.Buffer
	frame := image.NewPaletted(image.Rect(128, 0, 256, 256), color.Palette{color.Black})
	err := gif.EncodeAll(&out, &gif.GIF{Image: []*image.Paletted{frame}, Delay: []int{0}, Config: image.Config{Width: 256, Height: 256}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{PDF: noPDF{}}).prepare(t.Context(), out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if m.Pixels[0] != 255 || m.Pixels[3*127] != 255 || m.Pixels[3*128] != 0 || m.Pixels[len(m.Pixels)-1] != 0 {
		t.Errorf("row %v", m.Pixels[3*126:3*130])
	}
}

func TestMalformedOrientation(t *testing.T) {
	le := func(n, tag, kind uint16, count uint32, value uint16) []byte {
		b := binary.LittleEndian.AppendUint16([]byte("II*\x00\x08\x00\x00\x00"), n)
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, kind)
		b = binary.LittleEndian.AppendUint32(b, count)
		return binary.LittleEndian.AppendUint32(b, uint32(value))
	}
	for _, c := range []struct {
		tiff []byte
		want orientation
	}{
		{le(1, 0x0112, 3, 1, 6), rotated90},
		{[]byte("MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x08\x00\x00"), rotated270},
		{le(1, 0x0112, 3, 1, 9), upright},
		{le(1, 0x0112, 3, 1, 0), upright},
		{le(1, 0x0112, 4, 1, 6), upright},
		{le(1, 0x0112, 3, 2, 6), upright},
		{le(0, 0x0112, 3, 1, 6), upright},
		{le(0xffff, 0x0113, 3, 1, 6), upright},
		{le(1, 0x0112, 3, 1, 6)[:20], upright},
		{[]byte("II*\x00\xff\xff\xff\xff"), upright},
		{[]byte("Exif"), upright},
		{nil, upright},
	} {
		if got := tiffOrientation(c.tiff); got != c.want {
			t.Errorf("%q: %d, want %d", c.tiff, got, c.want)
		}
	}
}

func encodePNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// gray is an image of one shade.
func gray(t testing.TB, shade uint8) string {
	m := image.NewGray(image.Rect(0, 0, 4, 4))
	for i := range m.Pix {
		m.Pix[i] = shade
	}
	return url("image/png", encodePNG(t, m))
}

func TestBudget(t *testing.T) {
	const size = 3 * MinPixels
	p := New(Options{Cache: 2 * size, InFlight: 3 * size, PDF: noPDF{}})
	image := func(b *Batch, shade uint8) (*Image, error) { return b.Image(t.Context(), gray(t, shade)) }
	first, second := p.Batch(), p.Batch()
	for range 2 { // the same image twice is charged twice
		if _, err := image(first, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := image(second, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := image(second, 3); !errors.Is(err, ErrBusy) {
		t.Errorf("beside others: %v", err)
	}
	want := Stats{Entries: 2, Bytes: 2 * size, Limit: 2 * size, InFlight: 3 * size, Budget: 3 * size}
	if diff := cmp.Diff(want, p.Stats()); diff != "" {
		t.Error(diff)
	}
	first.Close()
	first.Close()
	if _, err := image(first, 1); !errors.Is(err, ErrBusy) {
		t.Errorf("after the end: %v", err)
	}
	for range 2 {
		if _, err := image(second, 3); err != nil {
			t.Fatal(err)
		}
	}
	fault := (*Error)(nil)
	if _, err := image(second, 3); !errors.As(err, &fault) || !strings.Contains(err.Error(), "exceed the limit of 0 MiB of pixels") {
		t.Errorf("more than all there is: %v", err)
	}
	second.Close()
	if s := p.Stats(); s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	a, _ := image(p.Batch(), 3)
	b, _ := image(p.Batch(), 3)
	if a != b {
		t.Error("an image is prepared anew that was kept")
	}
}

func TestCount(t *testing.T) {
	b := New(Options{PDF: noPDF{}}).Batch()
	if err := b.Count(60); err != nil {
		t.Error(err)
	}
	if err := b.Count(4); err != nil {
		t.Error(err)
	}
	if err := b.Count(1); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("65 images: %v", err)
	}
}

func TestMaxPixels(t *testing.T) {
	m, err := New(Options{MaxPixels: MinPixels, PDF: noPDF{}}).prepare(t.Context(), readFixture(t, "photo.jpg"))
	if err != nil || m.GridW*Patch != 192 || m.GridH*Patch != 288 {
		t.Errorf("%d x %d: %v", m.GridW*Patch, m.GridH*Patch, err)
	}
}

func TestCancelled(t *testing.T) {
	p := New(Options{PDF: noPDF{}})
	if err := p.decoding.Acquire(t.Context(), decodeRoom); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := p.Batch().Image(ctx, gray(t, 0)); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

// FuzzImage holds what is read of any file to its limits.
func FuzzImage(f *testing.F) {
	names, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		switch filepath.Ext(name) {
		case ".png", ".jpg", ".webp", ".gif":
			f.Add(readFixture(f, filepath.Base(name)))
		}
	}
	f.Add(pngHeader(1<<31-1, 1<<31-1))
	f.Add(pngHeader(5000, 5000))
	f.Add([]byte("\xff\xd8\xff\xe1\xff\xff"))
	f.Add([]byte("RIFF\xff\xff\xff\xffWEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := readHeader(file)
		if err == nil && h.width*h.height > 1<<17 {
			return // within the limits, but slow
		}
		var c *canvas
		if err == nil {
			c, err = h.decode(file)
		}
		if fault := (*Error)(nil); err != nil {
			if !errors.As(err, &fault) {
				t.Error(err)
			}
			return
		}
		o := h.orientation(file)
		want := image.Pt(h.width, h.height)
		if o.turns() {
			want = image.Pt(h.height, h.width)
		}
		if got := c.oriented(o).Rect.Size(); got != want || !c.Opaque() {
			t.Errorf("%v, want %v; opaque %v", got, want, c.Opaque())
		}
	})
}
