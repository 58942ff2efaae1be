package server

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
	"fetchd/internal/secure"
	"fetchd/internal/webapi"
)

const (
	// maxWebOfConn is the number of requests in flight on an unauthenticated connection. A
	// page of the console requests 15 files.
	maxWebOfConn = 16
	// maxFreeOfConn is the number of uncharged requests in flight on a connection.
	maxFreeOfConn = 4
	// pageTime is how long a client may take to read a page, the descriptor or the metrics, and
	// an unauthenticated client any answer.
	pageTime = 10 * time.Second
)

// bounded charges the memory of a request from its start, except health and metrics, and limits the
// requests of unauthenticated clients.
func (w *web) bounded(next http.Handler) http.Handler {
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
			endInTime(rw, r, func() { w.strangers(next, rw, r) })
			return
		}
		memory := w.service.budget.Lease(callerOf(r.Context()))
		defer memory.Close()
		if !memory.Grow(budget.Receiving, fetchBytes+fieldBytes(r.Header, headerBytes)) {
			webapi.WriteStatus(rw, status.Convert(w.service.admission.noMemory(r.Context(), "requests")))
			return
		}
		if r.URL.Path != rawPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			endInTime(rw, r, func() { w.strangers(next, rw, r) })
			return
		}
		w.strangers(next, rw, r)    // a fetch has a limit for each write
		endInTime(rw, r, func() {}) // for the bytes that are still buffered
	})
}

// endInTime limits the time in which a client may read an answer. Over HTTP/2 the end of an answer
// may be buffered until the handler returns, and no deadline applies after that. So it is written
// here, while the request is counted and its memory is charged.
func endInTime(rw http.ResponseWriter, r *http.Request, answer func()) {
	control := http.NewResponseController(rw)
	_ = control.SetWriteDeadline(time.Now().Add(pageTime)) // an error here is harmless: other limits apply
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	answer()
	if r.ProtoMajor == 2 {
		_ = control.Flush() // the client may be gone
	}
}

// strangers limits the requests of unauthenticated connections. Over HTTP/2, requests of a
// client that leaves no window for the answers would never end.
func (w *web) strangers(next http.Handler, rw http.ResponseWriter, r *http.Request) {
	c := connOf(r.Context())
	if c == nil || !c.stranger.Load() {
		next.ServeHTTP(rw, r)
		return
	}
	if _, err := w.service.callers.identify(r.Context(), shownBy(r)); err == nil {
		next.ServeHTTP(rw, r)
		return
	}
	defer c.calls.Add(-1)
	if c.calls.Add(1) > maxWebOfConn {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http resets this request alone
	}
	endInTime(rw, r, func() { next.ServeHTTP(rw, r) })
}

// shownBy returns the credentials of a request.
func shownBy(r *http.Request) Credentials {
	return Credentials{Token: secure.Bearer(r.Header.Values("Authorization")), TLS: r.TLS}
}
