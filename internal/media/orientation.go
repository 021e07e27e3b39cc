package media

import (
	"bytes"
	"encoding/binary"
	"image"
)

// An orientation says how a stored image is to be turned, as EXIF's tag 0x0112 does.
type orientation uint8

const (
	upright orientation = iota + 1
	flippedH
	rotated180
	flippedV
	transposed
	rotated90 // clockwise, to be upright
	transversed
	rotated270
)

// turns reports whether an image's sides change places.
func (o orientation) turns() bool { return o >= transposed }

// orientation finds how the image is to be turned. A tag that is malformed says nothing.
func (h *header) orientation(file []byte) orientation {
	return tiffOrientation(h.exif(file))
}

// oriented returns the image as it is to be seen.
func (m *canvas) oriented(o orientation) *canvas {
	w, h := m.size()
	if o.turns() {
		w, h = h, w
	}
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	sw, sh := m.size()
	for y := range sh {
		row := m.Pix[y*m.Stride:]
		for x := range sw {
			tx, ty := o.place(x, y, sw, sh)
			copy(dst.Pix[ty*dst.Stride+4*tx:][:4], row[4*x:4*x+4])
		}
	}
	return &canvas{dst}
}

// place is where the pixel x, y of a stored image of w x h pixels is to be seen.
func (o orientation) place(x, y, w, h int) (int, int) {
	switch o {
	case flippedH:
		return w - 1 - x, y
	case rotated180:
		return w - 1 - x, h - 1 - y
	case flippedV:
		return x, h - 1 - y
	case transposed:
		return y, x
	case rotated90:
		return h - 1 - y, x
	case transversed:
		return h - 1 - y, w - 1 - x
	case rotated270:
		return y, w - 1 - x
	}
	return x, y
}

// tiffOrientation reads the orientation of a TIFF structure's first directory.
//
// Source: TIFF 6.0; EXIF 2.32, 4.6.4.
func tiffOrientation(b []byte) orientation {
	if len(b) < 8 {
		return upright
	}
	var order binary.ByteOrder
	switch string(b[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return upright
	}
	at := int64(order.Uint32(b[4:]))
	if at+2 > int64(len(b)) {
		return upright
	}
	const entry, tag, short = 12, 0x0112, 3
	n := int(order.Uint16(b[at:]))
	for entries := b[at+2:]; n > 0 && len(entries) >= entry; n, entries = n-1, entries[entry:] {
		if order.Uint16(entries) != tag {
			continue
		}
		o := orientation(order.Uint16(entries[8:]))
		if order.Uint16(entries[2:]) != short || order.Uint32(entries[4:]) != 1 || order.Uint16(entries[8:]) > 8 || o < upright {
			return upright
		}
		return o
	}
	return upright
}

var exifPrefix = []byte("Exif\x00\x00")

// jpegEXIF finds the EXIF block among the segments before the image.
func jpegEXIF(file []byte) []byte {
	const startOfScan, app1 = 0xda, 0xe1
	for rest := file[2:]; len(rest) >= 4 && rest[0] == 0xff; {
		marker := rest[1]
		if marker == 0xff { // filler
			rest = rest[1:]
			continue
		}
		n := int(binary.BigEndian.Uint16(rest[2:]))
		if marker == startOfScan || n < 2 || n+2 > len(rest) {
			return nil
		}
		data := rest[4 : n+2]
		if tiff, ok := bytes.CutPrefix(data, exifPrefix); ok && marker == app1 {
			return tiff
		}
		rest = rest[n+2:]
	}
	return nil
}

// pngEXIF finds the eXIf chunk.
func pngEXIF(file []byte) []byte {
	for rest := file[8:]; len(rest) >= 12; {
		n, id := int64(binary.BigEndian.Uint32(rest)), string(rest[4:8])
		if n+12 > int64(len(rest)) {
			return nil
		}
		if id == "eXIf" {
			return bytes.TrimPrefix(rest[8:8+n], exifPrefix)
		}
		rest = rest[n+12:]
	}
	return nil
}

// webpEXIF finds the EXIF chunk.
func webpEXIF(file []byte) (tiff []byte) {
	riffChunks(file, func(id string, data []byte) error {
		if id == "EXIF" && tiff == nil {
			tiff = bytes.TrimPrefix(data, exifPrefix)
		}
		return nil
	})
	return tiff
}
