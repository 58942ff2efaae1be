// Package webapi is the frame of the HTTP APIs: their paths, their errors as google.rpc.Status, and the
// protection against pages of other origins.
package webapi

import (
	"context"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
