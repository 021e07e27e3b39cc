package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"splash/internal/chat/ojson"
)

// Terms of an upload.
const (
	uploadIdle = 30 * time.Second // without a byte
	uploadRate = 512 << 10        // bytes a second that an upload may not fall short of, beyond uploadIdle
)

// A budget is bytes that requests share.
type budget struct {
	mu     sync.Mutex
	limit  int64
	active int64
}

func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit-b.active {
		return false
	}
	b.active += n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active -= n
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active
}

// checkBody refuses a request whose body would not be read.
func (s *Server) checkBody(r *http.Request) *Error {
	if len(r.TransferEncoding) > 0 {
		return invalidf("transfer encoding is not supported")
	}
	encodings := r.Header.Values("Content-Encoding")
	for _, e := range encodings {
		if !strings.EqualFold(strings.TrimSpace(e), "identity") {
			return &Error{Status: http.StatusUnsupportedMediaType, Code: codeInvalid, Message: "Content-Encoding is not supported"}
		}
	}
	if !isJSON(r.Header.Values("Content-Type")) {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: codeInvalid, Message: "Content-Type must be application/json"}
	}
	if r.ContentLength <= 0 {
		return invalidf("Content-Length must be positive")
	}
	if r.ContentLength > s.o.MaxBody {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: codeTooLarge, Message: fmt.Sprintf(
			"request body is %d bytes; limit is %d bytes (--max-request-size)", r.ContentLength, s.o.MaxBody)}
	}
	return nil
}

func isJSON(types []string) bool {
	if len(types) != 1 {
		return false
	}
	t, _, err := mime.ParseMediaType(types[0])
	if err != nil {
		return false
	}
	return t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json")
}

// readBody reads a body of known length.
func (x *exchange) readBody() ([]byte, error) {
	// A client's word for a length is worth memory only as far as bytes follow.
	var body bytes.Buffer
	body.Grow(int(min(x.r.ContentLength, 1<<20)))
	if err := x.upload(&body); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// upload copies the body on the terms of an upload.
func (x *exchange) upload(to io.Writer) error {
	end := x.began.Add(uploadIdle + time.Duration(float64(x.r.ContentLength)/uploadRate*float64(time.Second)))
	if !x.deadline.IsZero() && x.deadline.Before(end) {
		end = x.deadline
	}
	// After the body net/http watches the connection, which is to have no deadline then.
	defer x.control.SetReadDeadline(time.Time{})
	buffer := make([]byte, 32<<10)
	var got int64
	for got < x.r.ContentLength {
		idle := time.Now().Add(uploadIdle)
		if end.Before(idle) {
			idle = end
		}
		x.control.SetReadDeadline(idle)
		n, err := x.r.Body.Read(buffer)
		got += int64(n)
		to.Write(buffer[:n])
		if err != nil && got < x.r.ContentLength {
			return uploadError(err)
		}
	}
	return nil
}

func uploadError(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Error{Status: http.StatusRequestTimeout, Code: codeTimeout, Message: "the request body did not arrive in time"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalidf("request body ended before Content-Length")
	}
	return errGone
}

// parseBody reads a body as a JSON object.
func parseBody(body []byte) (*ojson.Object, error) {
	text, ok := bodyText(body)
	if !ok {
		return nil, invalidf("invalid JSON request body: it is not UTF-8")
	}
	v, err := ojson.Decode(text, ojson.Options{RejectSurrogates: true})
	if err != nil {
		return nil, invalidf("invalid JSON request body: %v", err)
	}
	o, ok := v.(*ojson.Object)
	if !ok {
		return nil, invalidf("request body must be an object")
	}
	return o, nil
}

// bodyText decodes a body: UTF-8, with or without a byte order mark, or UTF-16 or UTF-32 as the zeros among its first
// bytes tell (RFC 4627, section 3).
func bodyText(b []byte) (string, bool) {
	if b, ok := bytes.CutPrefix(b, []byte("\xef\xbb\xbf")); ok {
		return string(b), utf8.Valid(b)
	}
	if order, size := wide(b); size > 0 {
		return decodeWide(b, order, size)
	}
	return string(b), utf8.Valid(b)
}

// wide tells the byte order and the size of the units of a text in UTF-16 or UTF-32.
func wide(b []byte) (binary.ByteOrder, int) {
	has := func(prefix string) bool { return bytes.HasPrefix(b, []byte(prefix)) }
	switch {
	case has("\x00\x00\xfe\xff"):
		return binary.BigEndian, 4
	case has("\xff\xfe\x00\x00"):
		return binary.LittleEndian, 4
	case has("\xfe\xff"):
		return binary.BigEndian, 2
	case has("\xff\xfe"):
		return binary.LittleEndian, 2
	case len(b) < 4:
		return nil, 0
	case b[0] == 0 && b[1] == 0 && b[2] == 0:
		return binary.BigEndian, 4
	case b[1] == 0 && b[2] == 0 && b[3] == 0:
		return binary.LittleEndian, 4
	case b[0] == 0 && b[2] == 0:
		return binary.BigEndian, 2
	case b[1] == 0 && b[3] == 0:
		return binary.LittleEndian, 2
	}
	return nil, 0
}

func decodeWide(b []byte, order binary.ByteOrder, size int) (string, bool) {
	if len(b)%size != 0 {
		return "", false
	}
	var text strings.Builder
	units := len(b) / size
	unit := func(i int) rune {
		if size == 2 {
			return rune(order.Uint16(b[2*i:]))
		}
		return rune(order.Uint32(b[4*i:]))
	}
	for i := 0; i < units; i++ {
		r := unit(i)
		if size == 2 && utf16.IsSurrogate(r) {
			if i++; i == units {
				return "", false
			}
			if r = utf16.DecodeRune(r, unit(i)); r == utf8.RuneError {
				return "", false
			}
		}
		if !utf8.ValidRune(r) {
			return "", false
		}
		if r != '\ufeff' || i > 0 {
			text.WriteRune(r)
		}
	}
	return text.String(), true
}
