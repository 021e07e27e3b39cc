package media

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/webp"
)

// decodeBytes is what decoding takes of memory for a pixel of the source, at most: the coefficients of a progressive JPEG
// and its planes, or 16-bit channels, beside the canvas and its turned copy.
const decodeBytes = 28

// decodeRoom is the memory that decoding may take at once: that of the largest image there may be.
const decodeRoom = MaxSourcePixels * decodeBytes

// A format is a kind of image file.
type format struct {
	name   string
	magic  func(file []byte) bool
	config func(file []byte) (image.Config, error)
	decode func(file []byte) (image.Image, error)
	exif   func(file []byte) []byte // the TIFF structure of an EXIF block; nil: none
}

func formats() []format {
	prefix := func(magic string) func([]byte) bool {
		return func(file []byte) bool { return bytes.HasPrefix(file, []byte(magic)) }
	}
	return []format{
		{
			name: "JPEG", magic: prefix("\xff\xd8\xff"), exif: jpegEXIF,
			config: func(f []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(f)) },
			decode: func(f []byte) (image.Image, error) { return jpeg.Decode(bytes.NewReader(f)) },
		},
		{
			name: "PNG", magic: prefix("\x89PNG\r\n\x1a\n"), exif: pngEXIF,
			config: func(f []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(f)) },
			decode: func(f []byte) (image.Image, error) { return png.Decode(bytes.NewReader(f)) },
		},
		{
			name: "GIF", magic: prefix("GIF8"), exif: func([]byte) []byte { return nil },
			config: func(f []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(f)) },
			decode: func(f []byte) (image.Image, error) { return gif.Decode(bytes.NewReader(f)) },
		},
		{
			name: "WebP", exif: webpEXIF,
			magic:  func(f []byte) bool { return len(f) >= 12 && string(f[:4]) == "RIFF" && string(f[8:12]) == "WEBP" },
			config: webpConfig,
			decode: decodeWebP,
		},
	}
}

// A header is what a file says of its image before it is decoded.
type header struct {
	format
	width, height int
}

// readHeader reads the header of an image file and refuses one of more pixels than are decoded.
func readHeader(file []byte) (h header, err error) {
	for _, f := range formats() {
		if !f.magic(file) {
			continue
		}
		config, err := guarded(func() (image.Config, error) { return f.config(file) })
		if err != nil {
			return h, undecoded(f.name, err)
		}
		h = header{format: f, width: config.Width, height: config.Height}
		if h.width < 1 || h.height < 1 {
			return h, errorf("image dimensions must be positive: the %s is %d x %d", f.name, h.width, h.height)
		}
		if int64(h.width)*int64(h.height) > MaxSourcePixels {
			return h, errorf("source image exceeds the pixel limit: %d x %d, at most %d pixels", h.width, h.height, MaxSourcePixels)
		}
		return h, nil
	}
	return h, errorf("image could not be decoded: it is no JPEG, PNG, WebP or GIF")
}

func undecoded(name string, err error) error {
	return errorf("image could not be decoded: %s: %v", name, err)
}

// guarded makes an error of a decoder's panic.
func guarded[T any](decode func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file is damaged: %v", p)
		}
	}()
	return decode()
}

// decode draws the image, or its first frame, on white.
func (h *header) decode(file []byte) (*canvas, error) {
	m, err := guarded(func() (image.Image, error) { return h.format.decode(file) })
	if err != nil {
		return nil, undecoded(h.name, err)
	}
	all := image.Rect(0, 0, h.width, h.height)
	if !m.Bounds().In(all) {
		return nil, errorf("image could not be decoded: the %s is %v, its header says %d x %d", h.name, m.Bounds(), h.width, h.height)
	}
	c := image.NewRGBA(all)
	if o, ok := m.(interface{ Opaque() bool }); !ok || m.Bounds() != all || !o.Opaque() {
		draw.Draw(c, all, image.NewUniform(color.White), image.Point{}, draw.Src)
	}
	draw.Draw(c, m.Bounds(), m, m.Bounds().Min, draw.Over)
	return &canvas{c}, nil
}

// decodeWebP decodes a still. What a lossy one holds is BT.601 in the range of video, which package image does not know.
func decodeWebP(file []byte) (image.Image, error) {
	m, err := webp.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *image.YCbCr:
		return videoColors(m, nil), nil
	case *image.NYCbCrA:
		return videoColors(&m.YCbCr, func(x, y int) uint8 { return m.A[m.AOffset(x, y)] }), nil
	}
	return m, nil
}

// videoColors converts an image whose luma spans 16 to 235 and whose chroma spans 16 to 240, in libwebp's fixed point
// (src/dsp/yuv.h). alpha is that of a pixel; nil: it is opaque.
func videoColors(m *image.YCbCr, alpha func(x, y int) uint8) *image.NRGBA {
	dst := image.NewNRGBA(m.Rect)
	high := func(v uint8, c int) int { return int(v) * c >> 8 }
	clip := func(v int) uint8 { return uint8(min(max(v>>6, 0), 255)) }
	for y := m.Rect.Min.Y; y < m.Rect.Max.Y; y++ {
		row := dst.Pix[dst.PixOffset(m.Rect.Min.X, y):]
		for x := m.Rect.Min.X; x < m.Rect.Max.X; x++ {
			c := m.COffset(x, y)
			luma, cb, cr := high(m.Y[m.YOffset(x, y)], 19077), m.Cb[c], m.Cr[c]
			row[0] = clip(luma + high(cr, 26149) - 14234)
			row[1] = clip(luma - high(cb, 6419) - high(cr, 13320) + 8708)
			row[2] = clip(luma + high(cb, 33050) - 17685)
			row[3] = 255
			if alpha != nil {
				row[3] = alpha(x, y)
			}
			row = row[4:]
		}
	}
	return dst
}

// webpConfig finds the size of a WebP still. The sizes of its canvas and of its frame must agree, which package webp takes
// for granted.
//
// Source: RFC 9649.
func webpConfig(file []byte) (c image.Config, err error) {
	framed := false
	err = riffChunks(file, func(id string, data []byte) error {
		var w, h int
		switch id {
		case "ANIM", "ANMF":
			return fmt.Errorf("animations are not supported")
		case "VP8X":
			if len(data) < 10 {
				return errDamaged
			}
			w, h = 1+int(uint24(data[4:])), 1+int(uint24(data[7:]))
		case "VP8 ":
			if len(data) < 10 || string(data[3:6]) != "\x9d\x01\x2a" {
				return errDamaged
			}
			w, h = int(binary.LittleEndian.Uint16(data[6:])&0x3fff), int(binary.LittleEndian.Uint16(data[8:])&0x3fff)
			framed = true
		case "VP8L":
			if len(data) < 5 || data[0] != 0x2f {
				return errDamaged
			}
			bits := binary.LittleEndian.Uint32(data[1:])
			w, h = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
			framed = true
		default:
			return nil
		}
		if c.Width != 0 && (c.Width != w || c.Height != h) {
			return fmt.Errorf("a frame of %d x %d on a canvas of %d x %d", w, h, c.Width, c.Height)
		}
		c.Width, c.Height = w, h
		return nil
	})
	if err == nil && !framed {
		err = errDamaged
	}
	return c, err
}

var errDamaged = fmt.Errorf("the file is damaged")

func uint24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

// riffChunks calls f with every chunk of a RIFF file, the last as far as it is there.
func riffChunks(file []byte, f func(id string, data []byte) error) error {
	rest := file[12:]
	for len(rest) >= 8 {
		id, n := string(rest[:4]), int64(binary.LittleEndian.Uint32(rest[4:]))
		rest = rest[8:]
		data := rest[:min(n, int64(len(rest)))]
		if err := f(id, data); err != nil {
			return err
		}
		rest = rest[min(n+n%2, int64(len(rest))):]
	}
	return nil
}
