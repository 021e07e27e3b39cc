package server

import (
	"container/list"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of connections.
const (
	headTimeout   = 30 * time.Second // from accepting a connection to the end of its request's head
	refuseTimeout = 2 * time.Second  // that a refused connection lingers
	mostRefused   = 1024             // connections that linger at once
)

// capacityRefusal is what a connection is told that there is no room for, whatever it would have asked.
var capacityRefusal = &Error{Status: http.StatusServiceUnavailable, Code: codeOverloaded, Message: "HTTP connection capacity is exhausted"}

// A listener accepts so many connections at once. When all are taken, one that still waits for its head gives way to a new
// one, the longest waiting first; when all hold a request, the new one is refused. It checks the head of each request
// before net/http sees it, so that every refusal has a body its client can read.
type listener struct {
	net.Listener
	limit int

	mu      sync.Mutex
	open    int
	waiting *list.List // of *conn: those whose head is not complete, in the order of arrival
	refused int
	closed  bool
}

func newListener(l net.Listener, limit int) *listener {
	return &listener{Listener: l, limit: limit, waiting: list.New()}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(nc); c != nil {
			return c, nil
		}
	}
}

// admit gives the connection a place, or refuses it.
func (l *listener) admit(nc net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		nc.Close()
		return nil
	}
	if l.open >= l.limit {
		oldest := l.waiting.Front()
		if oldest == nil {
			l.refuse(nc)
			return nil
		}
		victim := oldest.Value.(*conn)
		l.waiting.Remove(oldest)
		victim.place, victim.evicted = nil, true
		l.refuse(victim.Conn)
	} else {
		l.open++
	}
	c := &conn{Conn: nc, l: l, deadline: time.Now().Add(headTimeout)}
	c.place = l.waiting.PushBack(c)
	return c
}

// refuse answers a connection that has no place, and lets go of it.
func (l *listener) refuse(nc net.Conn) {
	if l.refused >= mostRefused {
		nc.Close()
		return
	}
	l.refused++
	go func() {
		writeRefusal(nc, openAI, capacityRefusal)
		l.mu.Lock()
		l.refused--
		l.mu.Unlock()
	}()
}

// Close stops accepting, and closes the connections that have not sent a request.
func (l *listener) Close() error {
	l.mu.Lock()
	l.closed = true
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*conn).Conn.Close()
	}
	l.mu.Unlock()
	return l.Listener.Close()
}

// connections returns how many places are taken.
func (l *listener) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// A conn is an accepted connection. Its first Read reads and checks the whole head of the request.
type conn struct {
	net.Conn
	l        *listener
	deadline time.Time     // of the head
	place    *list.Element // in l.waiting; nil once the head is there, or the place went to another
	checked  bool
	buffered []byte // that was read with the head
	evicted  bool   // its place went to another connection, and who took it closes it
	released bool
}

func (c *conn) Read(p []byte) (int, error) {
	if !c.checked {
		c.checked = true
		if !c.readHead() {
			return 0, io.EOF
		}
	}
	if len(c.buffered) > 0 {
		n := copy(p, c.buffered)
		if c.buffered = c.buffered[n:]; len(c.buffered) == 0 {
			c.buffered = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// readHead reads the head, and reports whether there is a request to answer; otherwise the connection was answered, or
// is to be closed without an answer.
func (c *conn) readHead() bool {
	c.Conn.SetReadDeadline(c.deadline)
	head, refusal := readHead(c.Conn)
	if !c.claim() {
		return false // it was refused meanwhile
	}
	if refusal != nil {
		if refusal.err != nil {
			writeRefusal(c.Conn, refusal.dialect, refusal.err)
		}
		return false
	}
	c.Conn.SetReadDeadline(time.Time{})
	c.buffered = head
	return true
}

// claim takes the connection out of those that may be refused, and reports whether it was one.
func (c *conn) claim() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil {
		c.l.waiting.Remove(c.place)
		c.place = nil
	}
	return !c.evicted
}

// CloseWrite ends the answer, for a client that is still sending.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (c *conn) Close() error {
	if evicted := c.release(); evicted {
		return nil
	}
	return c.Conn.Close()
}

// release gives the place back, unless another connection has it.
func (c *conn) release() (evicted bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil {
		c.l.waiting.Remove(c.place)
		c.place = nil
	}
	if !c.evicted && !c.released {
		c.released = true
		c.l.open--
	}
	return c.evicted
}

// writeRefusal answers a connection with an error, waits a little for what the client still sends, so that it reads the
// answer rather than a reset, and closes it.
func writeRefusal(c net.Conn, d dialect, e *Error) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(refuseTimeout))
	if _, err := c.Write(rawResponse(d, e)); err != nil {
		return
	}
	if closeWrite(c) == nil {
		io.CopyN(io.Discard, c, 1<<20)
	}
}
