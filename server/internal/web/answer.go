package web

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/internal/jsontext"
	"fetchd/internal/webapi"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/wire"
)

// maxJSONBytes limits a request. Base64 makes a body of 1 MiB longer by a third.
const maxJSONBytes = 3 << 20

// jsonMode is for HTTP: a message is held as itself and as JSON, where bytes are a third longer.
var jsonMode = calls.Mode{Unblocked: math.MaxInt, Copies: 3}

// answer writes the answer to a call. A write fails if the caller reads nothing for stall.
type answer struct {
	rw          http.ResponseWriter
	control     *http.ResponseController
	stall       time.Duration
	contentType string
	filename    string
	noMemory    func(things string) error // returns the error of a call that there is no memory for
	noAnswer    func() error              // returns that of a call whose fetch has run
	ran         bool                      // the fetch has sent a request, or may have
	quotes      bool                      // an error may quote the request, including secrets
	started     bool                      // the head is written
	admitted    bool                      // the caller is authenticated
	caller      string                    // its name; empty without one
	raw         bool                      // the answer is a body as bytes
	broken      bool                      // the answer must end abnormally
	http10      *wire.Conn                // nil: a later version than HTTP/1.0, which can show that a body broke only by a reset of its connection
	stalled     bool                      // the caller read nothing for stall
}

// readMessage reads a request in JSON and charges its memory.
func readMessage[T any, M interface {
	*T
	proto.Message
}](a *answer, r *http.Request, memory *budget.Lease) (M, error) {
	in := M(new(T))
	return in, a.read(r, memory, in)
}

func (a *answer) read(r *http.Request, memory *budget.Lease, in proto.Message) error {
	if err := webapi.CheckJSON(r); err != nil {
		return err
	}
	body, err := a.readBody(r, memory, maxJSONBytes, errLongJSON)
	if err != nil {
		return err
	}
	if n := badrequest.JSONElements(body); n > wire.MaxElements {
		return status.Errorf(codes.InvalidArgument, "the request has %d fields and list entries: send at most %d", n, wire.MaxElements)
	} else if !memory.Grow(budget.Receiving, int64(n)*elementBytes) {
		return a.noMemory("requests")
	}
	a.quotes = true
	if err := badrequest.ReadJSON(body, in, "the request"); err != nil {
		return err
	}
	a.quotes = false
	return nil
}

// readBody reads the body of a call, which may have up to limit bytes, and charges its memory.
func (a *answer) readBody(r *http.Request, memory *budget.Lease, limit int64, tooLong func() error) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLong()
	}
	_ = a.control.SetReadDeadline(time.Now().Add(wire.FirstMessageTime)) // if it is not supported, other limits apply
	body, err := readCharged(http.MaxBytesReader(a.rw, r.Body, limit), memory)
	if errors.Is(err, fetch.ErrOutOfMemory) {
		return nil, a.noMemory("requests")
	}
	if long := new(http.MaxBytesError); errors.As(err, &long) {
		return nil, tooLong()
	} else if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return nil, status.Error(codes.DeadlineExceeded, "the request did not arrive in time")
	} else if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the body of the request is cut off, or its chunks are malformed")
	}
	_ = a.control.SetReadDeadline(time.Time{}) // from here on net/http reads only to notice that the caller is gone
	return body, nil
}

// errLongJSON returns the error of a request that is too long. It is not read to its end.
func errLongJSON() error {
	return badrequest.Single(&errdetails.BadRequest_FieldViolation{Field: "body", Reason: badrequest.TooLarge,
		Description: fmt.Sprintf("is in a request of more than %d bytes of JSON: send at most that, with a body of at most %d bytes", maxJSONBytes, fetch.MaxRequestBodyBytes)})
}

// readCharged reads r to its end. It charges two bytes for each byte: for the text and for the
// decoded message.
func readCharged(r io.Reader, memory *budget.Lease) ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			size := max(2*cap(body), 4<<10)
			if !memory.Grow(budget.Receiving, 2*int64(size-cap(body))) {
				return nil, fetch.ErrOutOfMemory
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// elementBytes is the approximate memory of a decoded element without its text.
const elementBytes = 192

// chargeText charges n bytes of an answer in addition to its message.
func (a *answer) chargeText(n int, memory *budget.Lease) error {
	if n <= 0 || memory.Grow(budget.Answer, int64(n)) {
		return nil
	} else if a.ran {
		return a.noAnswer()
	}
	return a.noMemory("answers")
}

// write sends a message of size bytes, which memory is charged for, as the whole answer or as one line of
// many. It flushes, because a shutdown may close the connection as soon as the call has ended.
func (a *answer) write(m proto.Message, size int, memory *budget.Lease, line bool) error {
	text, err := jsontext.MarshalMessage(m)
	if err != nil {
		return err
	}
	// Names and default values make a message of many small fields up to eight times longer.
	if err := a.chargeText(size+len(text)-int(memory.Held(budget.Answer)), memory); err != nil {
		return err
	}
	if line {
		a.rw.Header().Set(buffering, "no")
		text = append(text, '\n')
	} else {
		a.rw.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
	a.start(http.StatusOK)
	return a.writeBytes(text, true)
}

// writeBytes sends a part of the body, and flushes it if more may follow later.
func (a *answer) writeBytes(text []byte, flush bool) error {
	for len(text) > 0 {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.stall)) // an error here is harmless, as in read
		n, err := a.rw.Write(text[:min(len(text), 64<<10)])
		if err != nil {
			return a.unwritten(err)
		}
		text = text[n:]
	}
	defer func() { _ = a.control.SetWriteDeadline(time.Time{}) }() // HTTP/2 resets the stream at the deadline even if nothing is being written
	if !flush {
		return nil
	}
	if err := a.control.Flush(); err != nil {
		return a.unwritten(err)
	}
	return nil
}

// unwritten returns the status of a call after a write failed.
func (a *answer) unwritten(err error) error {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		a.stalled = true
	}
	return calls.Stalled(a.stall)
}

func (a *answer) start(code int) {
	if a.started {
		return
	}
	a.started = true
	header := a.rw.Header()
	header.Set("Content-Type", a.contentType)
	webapi.Attach(header, a.filename)
	a.rw.WriteHeader(code)
}

// fail sends a status: as the answer, or as its last line if the answer has started.
func (a *answer) fail(st *status.Status) {
	switch {
	case a.started && a.raw:
		a.broken = true
		return
	case !a.started:
		webapi.WriteStatus(a.rw, st)
		return
	}
	webapi.WriteLastLine(a.rw, st)
}

// abort ends an answer so that the client sees that it is not complete.
func (a *answer) abort() {
	if a.broken {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http ends this request alone
	}
}
