package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Limits of a request's head.
const (
	mostLine    = 64 << 10 // bytes of the request line, and of a header line
	mostHeaders = 100
	mostHead    = 1 << 20 // bytes in all
)

// A headRefusal says why a request was not read. Without an error the connection is closed without an answer.
type headRefusal struct {
	dialect dialect
	err     *Error
}

// readHead reads a request's head from a connection and checks it. It returns all that was read, which may go beyond the
// head.
func readHead(r io.Reader) ([]byte, *headRefusal) {
	s := headScanner{}
	for {
		if done, refusal := s.scan(); done || refusal != nil {
			if refusal == nil {
				refusal = s.check()
			}
			return s.data, refusal
		}
		if err := s.fill(r); err != nil {
			return nil, s.ended(err)
		}
	}
}

// A headScanner cuts a head into lines as it arrives.
type headScanner struct {
	data        []byte
	line, at    int // where the current line starts, and how far it was looked at
	end         int // of the head
	requestLine string
	headers     int
	hosts       int
	expect      string
}

func (s *headScanner) fill(r io.Reader) error {
	const step = 4 << 10
	n := len(s.data)
	s.data = append(s.data, make([]byte, step)...)
	got, err := r.Read(s.data[n:])
	s.data = s.data[:n+got]
	if got > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// ended is the refusal of a connection that sends no more. A head that was not finished in time gets no answer.
func (s *headScanner) ended(err error) *headRefusal {
	var timeout net.Error
	if len(s.data) == 0 || !errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
		return &headRefusal{}
	}
	return s.refuse(http.StatusBadRequest, codeInvalid, "the request ended before its head did")
}

func (s *headScanner) refuse(status int, code, format string, args ...any) *headRefusal {
	d := openAI
	if parts := strings.Split(s.requestLine, " "); len(parts) > 1 {
		if path, ok := normalPath(parts[1]); ok {
			d = dialectOf(path)
		}
	}
	return &headRefusal{d, &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}}
}

// scan looks at the lines that are there. It reports the end of the head.
func (s *headScanner) scan() (done bool, refusal *headRefusal) {
	for {
		i := bytes.IndexByte(s.data[s.at:], '\n')
		if i < 0 {
			s.at = len(s.data)
			if len(s.data)-s.line > mostLine {
				return false, s.long()
			}
			return false, nil
		}
		line := s.data[s.line : s.at+i]
		s.at += i + 1
		s.line = s.at
		if len(line) > mostLine || s.at > mostHead {
			return false, s.long()
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case s.requestLine == "":
			s.requestLine = string(line)
			if refusal := s.checkLine(); refusal != nil {
				return false, refusal
			}
		case len(line) == 0:
			s.end = s.at
			return true, nil
		default:
			if refusal := s.header(line); refusal != nil {
				return false, refusal
			}
		}
	}
}

func (s *headScanner) long() *headRefusal {
	if s.requestLine == "" {
		return s.refuse(http.StatusRequestURITooLong, codeInvalid, "the request line is longer than %d bytes", mostLine)
	}
	return s.refuse(http.StatusRequestHeaderFieldsTooLarge, codeInvalid, "a header line is longer than %d bytes", mostLine)
}

// checkLine holds the request line to HTTP/1.0 and 1.1 (RFC 9112, section 3).
func (s *headScanner) checkLine() *headRefusal {
	parts := strings.Split(s.requestLine, " ")
	version := ""
	switch len(parts) {
	case 3:
		version = parts[2]
	case 2:
	default:
		return s.refuse(http.StatusBadRequest, codeInvalid, "malformed request line")
	}
	if version != "HTTP/1.0" && version != "HTTP/1.1" {
		return s.refuse(http.StatusHTTPVersionNotSupported, codeVersion, "only HTTP/1.0 and HTTP/1.1 are supported")
	}
	if _, ok := normalPath(parts[1]); !ok {
		return s.refuse(http.StatusBadRequest, codeInvalid, "malformed request target")
	}
	return nil
}

func (s *headScanner) header(line []byte) *headRefusal {
	if s.headers++; s.headers > mostHeaders {
		return s.refuse(http.StatusRequestHeaderFieldsTooLarge, codeInvalid, "more than %d header lines", mostHeaders)
	}
	name, value, _ := strings.Cut(string(line), ":")
	switch strings.ToLower(name) {
	case "host":
		s.hosts++
	case "expect":
		s.expect = strings.TrimSpace(value)
	}
	return nil
}

// check refuses a complete head that net/http would answer in its own words.
func (s *headScanner) check() *headRefusal {
	if s.hosts > 1 {
		return s.refuse(http.StatusBadRequest, codeInvalid, "more than one Host header")
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(s.data[:s.end])))
	switch {
	case err != nil:
		return s.refuse(http.StatusBadRequest, codeInvalid, "malformed request head")
	case s.hosts == 0 && r.ProtoAtLeast(1, 1):
		return s.refuse(http.StatusBadRequest, codeInvalid, "the Host header is missing")
	case !validHost(r.Host):
		return s.refuse(http.StatusBadRequest, codeInvalid, "malformed Host header")
	case s.expect != "" && !strings.EqualFold(s.expect, "100-continue"):
		return s.refuse(http.StatusExpectationFailed, codeInvalid, "only the expectation 100-continue is supported")
	}
	return nil
}

// validHost reports whether every byte may stand in a Host header (RFC 3986, section 3.2.2, as net/http reads it).
func validHost(host string) bool {
	for i := range len(host) {
		c := host[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case strings.IndexByte("!$%&'()*+,-.:;=[]_~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// rawResponse is an error as a whole response.
func rawResponse(d dialect, e *Error) []byte {
	body := encode(d.body(e))
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nServer: Splash\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
		e.Status, http.StatusText(e.Status), len(body))
	if e.Status == http.StatusServiceUnavailable {
		b.WriteString("Retry-After: 1\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}
