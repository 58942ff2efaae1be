// Package signing describes the requests that a fetch sends, for those who sign them (spec A7).
// It depends on nothing, so that a signer does not depend on fetches.
package signing

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Message is a request as it will be sent. Each transmission has its own: each hop of each
// attempt. Nothing in it changes after it was signed. A signer must not modify it.
type Message struct {
	// ID identifies the fetch. All transmissions of a fetch have the same.
	ID string
	// Time is when the message is signed, by the wall clock.
	Time time.Time
	// Method is the method of this hop.
	Method string
	// URL is the URL of this hop, without a fragment.
	URL *url.URL
	// Authority is the value of Host, or over HTTP/2 of :authority. A port is in it if the
	// URL has one.
	Authority string
	// Target is the path and the query as they are sent. The request target of a request that
	// a proxy forwards has the scheme and the host before it, but the origin gets only this.
	Target string
	// Header has every field that is sent, by its canonical name, with the values that the
	// origin receives: also Host and Content-Length. Only Connection is missing, because it
	// belongs to the connection, and so do fields for a proxy.
	Header http.Header
	// Body is the body. It is nil if the request has none.
	Body []byte
}

// Field is a header field that a signer adds.
type Field struct{ Name, Value string }

// Func returns the fields to add to a request. It must not modify the message. Its error is logged and
// must contain no secret.
type Func func(ctx context.Context, m *Message) ([]Field, error)
