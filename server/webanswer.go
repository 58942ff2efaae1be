package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
)

// webAnswer writes the answer to a call. No write waits longer than patience for
// a caller that does not read.
type webAnswer struct {
	rw          http.ResponseWriter
	control     *http.ResponseController
	patience    time.Duration
	contentType string
	admission   *admission
	quotes      bool // an error may hold parts of the request, secrets included
	begun       bool
	admitted    bool // the caller is allowed
}

// read reads the request and charges memory for it.
func (a *webAnswer) read(r *http.Request, memory *budget.Lease) (*pb.FetchRequest, error) {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return nil, status.Errorf(codes.InvalidArgument, "the Content-Type is %.60q: send application/json", kind)
	}
	if r.ContentLength > maxJSONBytes {
		return nil, errLongJSON()
	}
	_ = a.control.SetReadDeadline(time.Now().Add(firstMessageTime)) // a connection that cannot has other limits
	body, err := readCharged(http.MaxBytesReader(a.rw, r.Body, maxJSONBytes), memory)
	if errors.Is(err, fetch.ErrOutOfMemory) {
		return nil, a.admission.noMemory(r.Context(), "requests")
	}
	if long := new(http.MaxBytesError); errors.As(err, &long) {
		return nil, errLongJSON()
	} else if err != nil {
		return nil, status.Error(codes.DeadlineExceeded, "the request did not come to its end in time")
	}
	_ = a.control.SetReadDeadline(time.Time{}) // from here on it only tells that the caller has left
	if n := jsonElements(body); n > maxElements {
		return nil, status.Errorf(codes.InvalidArgument, "the request has %d fields and list entries: send at most %d", n, maxElements)
	} else if !memory.Grow(budget.Receiving, int64(n)*elementBytes) {
		return nil, a.admission.noMemory(r.Context(), "requests")
	}
	in := new(pb.FetchRequest)
	a.quotes = true
	if err := protojson.Unmarshal(body, in); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the request is no FetchRequest in JSON: %s", jsonFault(err))
	}
	a.quotes = false
	return in, nil
}

// errLongJSON refuses a request that is not read to its end.
func errLongJSON() error {
	v := violations{fields: []*errdetails.BadRequest_FieldViolation{{Field: "body", Reason: reasonTooLarge,
		Description: fmt.Sprintf("is in a request of more than %d bytes of JSON: send at most that, and %d in a body", maxJSONBytes, fetch.MaxRequestBodyBytes)}}}
	return v.err()
}

// readCharged reads to the end. It charges two bytes for each byte: the text, and what is
// decoded from it.
func readCharged(r io.Reader, memory *budget.Lease) ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			room := max(2*cap(body), 4<<10)
			if !memory.Grow(budget.Receiving, 2*int64(room-cap(body))) {
				return nil, fetch.ErrOutOfMemory
			}
			body = append(make([]byte, 0, room), body...)
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

// elementBytes is about the memory of a decoded element without its text.
const elementBytes = 192

// jsonElements counts what can take memory besides the text itself.
func jsonElements(text []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

// jsonFault is what protojson found, without the variations that it makes so that
// nobody compares its texts.
func jsonFault(err error) string {
	text := strings.ReplaceAll(fmt.Sprint(err), "\u00a0", " ")
	return fmt.Sprintf("%.200s", strings.TrimPrefix(strings.TrimPrefix(text, "proto:"), " "))
}

// write sends a message, at once if it is one of many.
func (a *webAnswer) write(m proto.Message, line bool) error {
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	a.begin(http.StatusOK)
	if line {
		text = append(text, '\n')
	}
	for len(text) > 0 {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.patience)) // as above
		n, err := a.rw.Write(text[:min(len(text), 64<<10)])
		if err != nil {
			return stalledError(a.patience)
		}
		text = text[n:]
	}
	defer func() { _ = a.control.SetWriteDeadline(time.Time{}) }() // HTTP/2 resets the stream when it passes, though nothing be written
	if !line {
		return nil
	}
	return a.control.Flush()
}

func (a *webAnswer) begin(code int) {
	if a.begun {
		return
	}
	a.begun = true
	header := a.rw.Header()
	header.Set("Content-Type", a.contentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff") // a body is the origin's
	a.rw.WriteHeader(code)
}

// fail tells why there is no outcome: as the answer, or where that has begun as
// its last line.
func (a *webAnswer) fail(st *status.Status) {
	if !a.begun {
		writeStatus(a.rw, st)
		return
	}
	text, err := protojson.Marshal(st.Proto())
	if err != nil {
		return // a detail that nobody registered; the answer just ends
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(time.Second)) // as above
	_, _ = fmt.Fprintf(a.rw, "{\"error\":%s}\n", text)          // the caller may be gone
}

// webCodes are the HTTP statuses of gRPC's codes, as google.rpc.Code has them.
var webCodes = map[codes.Code]int{
	codes.Canceled: 499, codes.InvalidArgument: http.StatusBadRequest, codes.DeadlineExceeded: http.StatusGatewayTimeout,
	codes.NotFound: http.StatusNotFound, codes.PermissionDenied: http.StatusForbidden, codes.Unauthenticated: http.StatusUnauthorized,
	codes.ResourceExhausted: http.StatusTooManyRequests, codes.FailedPrecondition: http.StatusBadRequest, codes.Aborted: http.StatusConflict,
	codes.Unimplemented: http.StatusNotImplemented, codes.Unavailable: http.StatusServiceUnavailable,
}

// isTooLarge reports whether a request was refused for its size.
func isTooLarge(st *status.Status) bool {
	for _, detail := range st.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			return slices.ContainsFunc(bad.GetFieldViolations(), func(v *errdetails.BadRequest_FieldViolation) bool { return v.GetReason() == reasonTooLarge })
		}
	}
	return false
}

// writeStatus answers with a google.rpc.Status.
func writeStatus(rw http.ResponseWriter, st *status.Status) {
	code, known := webCodes[st.Code()]
	switch {
	case !known:
		code = http.StatusInternalServerError
	case isTooLarge(st):
		code = http.StatusRequestEntityTooLarge
	}
	header := rw.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	switch st.Code() {
	case codes.ResourceExhausted, codes.Unavailable:
		header.Set("Retry-After", "1")
	case codes.Unauthenticated:
		header.Set("WWW-Authenticate", "Bearer")
	}
	rw.WriteHeader(code)
	text, err := protojson.Marshal(st.Proto())
	if err != nil {
		text = []byte(`{"code":13,"message":"internal error"}`)
	}
	_, _ = rw.Write(append(text, '\n')) // who asked is gone
}
