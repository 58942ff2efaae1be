package door

import (
	"net/http"
	"time"
)

const (
	// maxRequests is the number of requests in flight of a stranger. A page of the console requests 15
	// files.
	maxRequests = 16
	// readTime is how long a client may take to read a page, and a stranger any answer.
	readTime = 10 * time.Second
)

// Limit limits the requests of strangers in number, and in the time to read their answers: over
// HTTP/2, those of a client that leaves no window for the answers would never end. identifies reports
// whether a request has valid credentials, and calls [Conn.Authenticated] if it has. The server must
// use [ConnContext].
func Limit(next http.Handler, identifies func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c := FromContext(r.Context())
		c.endHandshake()
		if !c.IsStranger() || identifies(r) {
			next.ServeHTTP(rw, r)
			return
		}
		defer c.Leave()
		if c.Enter() > maxRequests {
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http resets this request alone
		}
		EndInTime(rw, r, func() { next.ServeHTTP(rw, r) })
	})
}

// EndInTime limits the time in which a client may read an answer. Over HTTP/2 the end of an answer may
// be buffered until the handler returns, and no deadline applies after that. So it is written here,
// while the request is counted.
func EndInTime(rw http.ResponseWriter, r *http.Request, answer func()) {
	control := http.NewResponseController(rw)
	_ = control.SetWriteDeadline(time.Now().Add(readTime)) // an error here is harmless: other limits apply
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	answer()
	if r.ProtoMajor == 2 {
		_ = control.Flush() // the client may be gone
	}
}
