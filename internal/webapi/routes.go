// Package webapi is the frame of the HTTP APIs: their paths, their errors as google.rpc.Status, and the
// protection against pages of other origins.
package webapi

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/internal/badrequest"
	"fetchd/internal/jsontext"
)

// Routes are the paths of an HTTP port. The zero value is not usable; see [NewRoutes].
type Routes struct {
	*http.ServeMux
	known []string // the paths and their methods, for people
}

// NewRoutes returns routes without paths.
func NewRoutes() *Routes { return &Routes{ServeMux: http.NewServeMux()} }

// Add serves a path for the given methods, separated by spaces. GET includes HEAD. Any other
// method of the path gets 405.
func (r *Routes) Add(methods, path string, handler http.HandlerFunc) {
	for method := range strings.FieldsSeq(methods) {
		r.HandleFunc(method+" "+path, handler)
	}
	allow := strings.ReplaceAll(strings.Replace(methods, "GET", "GET HEAD", 1), " ", ", ")
	r.HandleFunc(path, func(rw http.ResponseWriter, request *http.Request) {
		rw.Header().Set("Allow", allow)
		SendStatus(rw, http.StatusMethodNotAllowed, status.Newf(codes.Unimplemented, "%.60q does not allow the method %.20q: use %s", request.URL.Path, request.Method, allow))
	})
	r.known = append(r.known, strings.ReplaceAll(methods, " ", "|")+" "+strings.TrimSuffix(path, "{$}"))
}

// AddHealth serves /healthz, and /readyz, which reports to a load balancer whether to send calls.
func (r *Routes) AddHealth(draining context.Context) {
	ok := func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok\n") } // an error means that the client is gone
	r.Add("GET", "/healthz", ok)
	r.Add("GET", "/readyz", func(rw http.ResponseWriter, request *http.Request) {
		if draining.Err() != nil {
			http.Error(rw, "draining", http.StatusServiceUnavailable)
			return
		}
		ok(rw, request)
	})
}

// AddDescriptor serves the contract to clients that generate stubs at run time.
func (r *Routes) AddDescriptor(filename string, descriptor []byte) {
	r.Add("GET", "/v1/descriptor", Cached(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/x-protobuf")
		Attach(rw.Header(), filename)
		_, _ = rw.Write(descriptor) // an error means that the client is gone
	})))
}

// Mention adds to the paths that the answer for an unknown path lists.
func (r *Routes) Mention(path string) { r.known = append(r.known, path) }

// Rest answers requests for all other paths.
func (r *Routes) Rest() {
	known := strings.Join(r.known, ", ")
	r.HandleFunc("/", func(rw http.ResponseWriter, request *http.Request) {
		WriteStatus(rw, status.Newf(codes.NotFound, "there is no %.60q: see %s", request.URL.Path, known))
	})
}

// CheckJSON returns INVALID_ARGUMENT unless a request says that it is JSON.
func CheckJSON(r *http.Request) error {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return status.Errorf(codes.InvalidArgument, "the Content-Type is %.60q: send application/json", kind)
	}
	return nil
}

// Protect sets the headers of every answer of the API. It may hold bytes of an origin, which must
// not run in a browser as a page of this service.
func Protect(header http.Header) {
	header.Set("Content-Security-Policy", "sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	Attach(header, "")
}

// Attach makes browsers save an answer, under a name that no origin chose.
func Attach(header http.Header, filename string) {
	value := "attachment"
	if filename != "" {
		value += `; filename="` + filename + `"`
	}
	header.Set("Content-Disposition", value)
}

// webCodes maps gRPC codes to HTTP statuses, as google.rpc.Code documents them.
var webCodes = map[codes.Code]int{
	codes.Canceled: 499, codes.InvalidArgument: http.StatusBadRequest, codes.DeadlineExceeded: http.StatusGatewayTimeout,
	codes.NotFound: http.StatusNotFound, codes.PermissionDenied: http.StatusForbidden, codes.Unauthenticated: http.StatusUnauthorized,
	codes.ResourceExhausted: http.StatusTooManyRequests, codes.FailedPrecondition: http.StatusBadRequest, codes.Aborted: http.StatusConflict,
	codes.Unimplemented: http.StatusNotImplemented, codes.Unavailable: http.StatusServiceUnavailable,
}

// isTooLarge reports whether a request was refused because of its size.
func isTooLarge(st *status.Status) bool {
	return slices.ContainsFunc(badrequest.Of(st), func(v *errdetails.BadRequest_FieldViolation) bool { return v.GetReason() == badrequest.TooLarge })
}

// WriteStatus sends a google.rpc.Status as the answer, with the HTTP status of its code.
func WriteStatus(rw http.ResponseWriter, st *status.Status) {
	code, known := webCodes[st.Code()]
	switch {
	case !known:
		code = http.StatusInternalServerError
	case isTooLarge(st):
		code = http.StatusRequestEntityTooLarge
	}
	SendStatus(rw, code, st)
}

// WriteLastLine sends a google.rpc.Status as the last line of an answer that has started.
func WriteLastLine(rw http.ResponseWriter, st *status.Status) {
	text, err := jsontext.MarshalMessage(st.Proto())
	if err != nil {
		return // a detail of an unknown type: the answer ends without a status
	}
	_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(time.Second)) // if it is not supported, other limits apply
	_, _ = fmt.Fprintf(rw, "{\"error\":%s}\n", text)                                 // the caller may be gone
}

// retryAfter returns the seconds after which a refused call should be repeated: what its google.rpc.RetryInfo says,
// and at least 1.
func retryAfter(st *status.Status) int {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(int(math.Ceil(info.GetRetryDelay().AsDuration().Seconds())), 1)
		}
	}
	return 1
}

// SendStatus sends a google.rpc.Status as the answer, with an HTTP status.
func SendStatus(rw http.ResponseWriter, code int, st *status.Status) {
	header := rw.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	switch st.Code() {
	case codes.ResourceExhausted, codes.Unavailable:
		header.Set("Retry-After", strconv.Itoa(retryAfter(st)))
	case codes.Unauthenticated:
		header.Set("WWW-Authenticate", "Bearer")
	}
	rw.WriteHeader(code)
	text, err := jsontext.MarshalMessage(st.Proto())
	if err != nil {
		text = []byte(`{"code":13,"message":"internal error"}`)
	}
	_, _ = rw.Write(append(text, '\n')) // an error means that the client is gone
}
