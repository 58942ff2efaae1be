package server

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/secure"
	"fetchd/internal/webapi"
)

// maxFreeOfConn is the number of uncharged requests in flight on a connection.
const maxFreeOfConn = 4

// bounded charges the memory of a request from its start, except health and metrics, and limits the
// requests of unauthenticated clients.
func (w *web) bounded(routes http.Handler) http.Handler {
	next := door.Limit(routes, w.identifies)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			webapi.Protect(rw.Header())
		}
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics": // always answered
			if c := connOf(r.Context()); c != nil {
				defer c.free.Add(-1)
				if c.free.Add(1) > maxFreeOfConn {
					panic(http.ErrAbortHandler) //nolint:forbidigo // net/http resets this request alone
				}
			}
			door.EndInTime(rw, r, func() { next.ServeHTTP(rw, r) })
			return
		}
		memory := w.service.budget.Lease(callerOf(r.Context()))
		defer memory.Close()
		if !memory.Grow(budget.Receiving, fetchBytes+fieldBytes(r.Header, headerBytes)) {
			webapi.WriteStatus(rw, status.Convert(w.service.admission.noMemory(r.Context(), "requests")))
			return
		}
		if r.URL.Path != rawPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			door.EndInTime(rw, r, func() { next.ServeHTTP(rw, r) })
			return
		}
		next.ServeHTTP(rw, r)            // a fetch has a limit for each write
		door.EndInTime(rw, r, func() {}) // for the bytes that are still buffered
	})
}

// identifies reports whether a request has valid credentials.
func (w *web) identifies(r *http.Request) bool {
	_, err := w.service.callers.identify(r.Context(), shownBy(r))
	return err == nil
}

// shownBy returns the credentials of a request.
func shownBy(r *http.Request) Credentials {
	return Credentials{Token: secure.Bearer(r.Header.Values("Authorization")), TLS: r.TLS}
}
