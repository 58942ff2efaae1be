package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The reasons why a step ends without a complete answer.
var (
	errGone        = errors.New("client is gone")
	errBroken      = errors.New("broken off, as the step asks")
	errUnsupported = errors.New("this protocol cannot express the fault")
)

// errorField is the response field that says why a URL was refused.
const errorField = "Origin-Error"

// exchange is one request and its answer.
type exchange struct {
	origin *Origin
	conn   *connection
	place  int // number of this request on its connection, from 1
	req    *http.Request
	fields []Field
	wire   wire
	ctx    context.Context // ends when the client leaves
	entry  *entry
	// bodyRead, if set, is called when all of the request body was read.
	bodyRead func()
}

// serve answers one request. It reports whether the connection can be reused.
func (o *Origin) serve(x *exchange) bool {
	path := x.path()
	if page := o.page(path); page != nil {
		r, err := page(x.req)
		if err != nil {
			return x.refuse(http.StatusInternalServerError, err) == nil
		}
		return x.reply(r) == nil
	}
	rt, err := o.parseRoute(path)
	if err != nil {
		return x.refuse(http.StatusBadRequest, err) == nil
	}
	var s *step
	var stream uint32
	if w, ok := x.wire.(*h2wire); ok {
		stream = w.stream.id
	}
	x.entry, s = o.journal.open(x.request(), rt, stream)
	err = x.perform(s)
	end := endOf(err)
	x.entry.finish(end)
	o.logger.Debug("answered", slog.String("key", rt.key), slog.String("step", s.text), slog.String("end", string(end)))
	return err == nil
}

func endOf(err error) End {
	switch {
	case err == nil:
		return EndAnswered
	case errors.Is(err, errBroken):
		return EndBroken
	case errors.Is(err, errUnsupported):
		return EndRefused
	}
	return EndClientGone
}

func (x *exchange) perform(s *step) error {
	if x.conn.closeNext.Load() {
		_ = x.readBody() // the connection is closed whatever the body was
		return x.breakOff(howFin)
	}
	if s.at == atAcceptBody {
		return s.kind.run(x, s) // reads the body itself
	}
	if !s.answer.unread {
		if err := x.readBody(); err != nil {
			return errGone
		}
	}
	err := s.kind.run(x, s)
	if !errors.Is(err, errUnsupported) {
		return err
	}
	return errors.Join(err, x.refuse(http.StatusNotImplemented, err))
}

// path returns the encoded path as sent.
func (x *exchange) path() string {
	if uri := x.req.RequestURI; strings.HasPrefix(uri, "/") {
		path, _, _ := strings.Cut(uri, "?")
		return path
	}
	return x.req.URL.EscapedPath()
}

func (x *exchange) request() Request {
	return Request{
		Method:            x.req.Method,
		Path:              x.path(),
		Query:             x.req.URL.RawQuery,
		Host:              x.req.Host,
		Protocol:          x.req.Proto,
		Listener:          x.conn.listener,
		RemoteAddr:        x.req.RemoteAddr,
		Connection:        x.conn.id,
		ConnectionRequest: x.place,
		Header:            x.req.Header.Clone(),
		Fields:            x.fields,
		Time:              time.Now(),
	}
}

// readBody reads the request body and logs its size and digest.
func (x *exchange) readBody() error {
	hash := sha256.New()
	n, err := io.Copy(hash, x.req.Body)
	if err != nil {
		x.entry.body(n, "")
		return err
	}
	x.entry.body(n, hex.EncodeToString(hash.Sum(nil)))
	if x.bodyRead != nil {
		x.bodyRead()
	}
	return nil
}

// readSome reads at most n bytes of the request body.
func (x *exchange) readSome(n int64) {
	got, _ := io.CopyN(io.Discard, x.req.Body, n) // shorter bodies are fine
	x.entry.body(got, "")
}

// pause flushes and waits. It returns errGone if the client leaves.
func (x *exchange) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if err := x.wire.flush(); err != nil {
		return errGone
	}
	return wait(x.ctx, d)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errGone
	}
}

// hush flushes and sends nothing more until the client leaves.
func (x *exchange) hush() error {
	if err := x.wire.flush(); err != nil {
		return errGone
	}
	<-x.ctx.Done()
	return errGone
}

// breakOff ends the connection in the given way. If how is "", it ends the
// connection in HTTP/1.1 and only the stream in HTTP/2.
func (x *exchange) breakOff(how string) error {
	if err := x.wire.flush(); err != nil {
		return errGone
	}
	if how == "" {
		return x.wire.abort()
	}
	return x.wire.sever(how)
}

// refuse answers with an error message from the origin itself.
func (x *exchange) refuse(status int, why error) error {
	_, _ = io.Copy(io.Discard, x.req.Body) // unread bytes could reset the connection
	reason := fmt.Sprintf("%v", why)
	return x.reply(reply{
		status: status,
		fields: []Field{{"Content-Type", "text/plain; charset=utf-8"}, {errorField, reason}},
		body:   []byte("origin: " + reason + "\n"),
	})
}

// reply is a small answer without faults.
type reply struct {
	status int
	fields []Field
	body   []byte
}

func (x *exchange) reply(r reply) error {
	h := &head{
		status:   strconv.Itoa(r.status),
		fields:   append(r.fields, Field{"Date", time.Now().UTC().Format(http.TimeFormat)}),
		length:   int64(len(r.body)),
		bodyless: x.req.Method == http.MethodHead,
	}
	if err := x.wire.begin(h); err != nil {
		return err
	}
	if !h.bodyless {
		if err := x.wire.body(r.body); err != nil {
			return err
		}
	}
	return x.wire.end(nil)
}

// wire is what a step needs from the protocol. Its methods return errGone,
// errBroken and errUnsupported.
type wire interface {
	// interim sends an informational response.
	interim(status int, fields []Field) error
	// begin sends the head.
	begin(h *head) error
	// body sends bytes of the body. The caller checks that a body is allowed.
	body(p []byte) error
	// end completes the answer.
	end(trailers []Field) error
	// flush sends what is buffered.
	flush() error
	// abort breaks off this exchange: the stream in HTTP/2, the connection in
	// HTTP/1.1. It returns errBroken.
	abort() error
	// sever ends the connection. It returns errBroken.
	sever(how string) error
	// raw sends bytes that are not HTTP.
	raw(p []byte) error
	// major is the HTTP version.
	major() int
}

// head is the head of a response, and how its body is framed.
type head struct {
	status   string // three digits
	fields   []Field
	length   int64 // the value of Content-Length; unset for none
	bodyless bool  // no body follows, whatever length is

	// HTTP/1.1 only, except that h2fault supports drip.
	chunked    bool
	chunkFault string
	closing    bool // Connection: close
	drip       time.Duration
	version    string // in the status line; empty: 1.1
}

// code is the status as a number.
func (h *head) code() int {
	n, err := strconv.Atoi(h.status)
	if err != nil {
		return 0 // not reached: a status is three digits
	}
	return n
}

// forbidsBody reports whether a response with this status has no body (RFC 9110
// §6.4.1).
func forbidsBody(code int) bool {
	return code/100 == 1 || code == http.StatusNoContent || code == http.StatusNotModified
}
