package origin

import (
	"net/http"
	"strconv"
	"time"
)

// wire is what a step needs of the protocol below it. Its errors are errGone,
// errBroken and errUnsupported.
type wire interface {
	// interim sends an informational response.
	interim(status int, fields []Field) error
	// begin sends the head.
	begin(h *head) error
	// body sends bytes of the body. The caller knows when there may be none.
	body(p []byte) error
	// end completes the answer.
	end(trailers []Field) error
	// flush sends what is buffered.
	flush() error
	// abort ends this exchange with an error, and the connection only if that
	// is the protocol's way. It returns errBroken.
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
	length   int64 // what Content-Length says; unset for none
	bodyless bool  // no body follows, whatever the length says

	// HTTP/1.1 only, but for drip in h2fault.
	chunked    bool
	chunkFault string
	closing    bool // Connection: close
	drip       time.Duration
}

// code is the status as a number.
func (h *head) code() int {
	n, err := strconv.Atoi(h.status)
	if err != nil {
		return 0 // not reached: a status is three digits
	}
	return n
}

// forbidsBody says that a response of this status has no body (RFC 9110
// §6.4.1).
func forbidsBody(code int) bool {
	return code/100 == 1 || code == http.StatusNoContent || code == http.StatusNotModified
}
