package server

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// routes are the paths of the HTTP port.
type routes struct {
	*http.ServeMux
	known []string // the paths and their methods, for people
}

// add serves a path for the given methods, separated by spaces. GET includes HEAD. Any other
// method of the path gets 405.
func (r *routes) add(methods, path string, handler http.HandlerFunc) {
	for method := range strings.FieldsSeq(methods) {
		r.HandleFunc(method+" "+path, handler)
	}
	allow := strings.ReplaceAll(strings.Replace(methods, "GET", "GET HEAD", 1), " ", ", ")
	r.HandleFunc(path, func(rw http.ResponseWriter, request *http.Request) {
		rw.Header().Set("Allow", allow)
		sendStatus(rw, http.StatusMethodNotAllowed, status.Newf(codes.Unimplemented, "%.60q does not allow the method %.20q: use %s", request.URL.Path, request.Method, allow))
	})
	r.known = append(r.known, strings.ReplaceAll(methods, " ", "|")+" "+strings.TrimSuffix(path, "{$}"))
}

// rest answers requests for all other paths.
func (r *routes) rest() {
	known := strings.Join(r.known, ", ")
	r.HandleFunc("/", func(rw http.ResponseWriter, request *http.Request) {
		writeStatus(rw, status.Newf(codes.NotFound, "there is no %.60q: see %s", request.URL.Path, known))
	})
}

// protect sets the headers of every answer of the API. It may hold bytes of an origin, which must
// not run in a browser as a page of this service.
func protect(header http.Header) {
	header.Set("Content-Security-Policy", "sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	attach(header, "")
}

// attach makes browsers save an answer, under a name that no origin chose.
func attach(header http.Header, filename string) {
	value := "attachment"
	if filename != "" {
		value += `; filename="` + filename + `"`
	}
	header.Set("Content-Disposition", value)
}
