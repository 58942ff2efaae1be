package classify_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/conformance/origin"
)

// Errors of an exchange on an established connection.

// requests lists failures while the request is sent.
func requests(o *origin.Origin) []failure {
	post := func(listener, step string) func(*testing.T) error {
		return func(t *testing.T) error {
			u := o.URL(listener, "/s/"+key(t.Name())+"/"+step)
			return headErrorOf(t, newClient(t, o), request(t.Context(), t, http.MethodPost, u, endless()))
		}
	}
	return []failure{
		{"request: reset in the body", classify.PhaseRequest, classify.ConnectionReset, post("http", "reset:at=accept-body,after=1000")},
		{"request: reset in the body, TLS", classify.PhaseRequest, classify.ConnectionReset, post("https1", "reset:at=accept-body,after=1000")},
		{"request: reset in the body, HTTP/2", classify.PhaseRequest, classify.ConnectionReset, post("https", "reset:at=accept-body,after=1000")},
		{"request: closed in the body", classify.PhaseRequest, classify.ConnectionReset, post("http", "fin:at=accept-body,after=1000")},
		{"request: closed in the body, TLS", classify.PhaseRequest, classify.ConnectionReset, post("https1", "fin:at=accept-body,after=1000")},
		{"request: closed in the body, HTTP/2", classify.PhaseRequest, classify.ConnectionReset, post("h2fault", "fin:at=accept-body,after=1000")},
		{"request: reset while it is written", classify.PhaseRequest, classify.ConnectionReset, resetError},
		{"request: written to a connection we closed", classify.PhaseRequest, classify.ConnectionReset, func(t *testing.T) error {
			conn := dialed(t, o.Addr("tcp-silent"))
			_ = conn.Close()
			_, err := io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
			return err
		}},
		{"request: not written in time", classify.PhaseRequest, classify.WriteTimeout, func(t *testing.T) error {
			conn := dialed(t, o.Addr("tcp-noread"))
			if err := conn.SetWriteDeadline(time.Now().Add(short)); err != nil {
				t.Fatal(err)
			}
			_, err := io.Copy(conn, endless())
			return err
		}},
	}
}

// heads lists failures before the HTTP/1.1 response head is complete.
func heads(o *origin.Origin) []failure {
	get := func(listener, step string, tune ...func(*http.Transport)) func(*testing.T) error {
		return func(t *testing.T) error {
			return headError(t, newClient(t, o, tune...), o.URL(listener, "/s/"+key(t.Name())+"/"+step))
		}
	}
	raw := func(answer string) func(*testing.T) error {
		return func(t *testing.T) error {
			addr := serveRaw(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4096)) // the request fits
				_, _ = io.WriteString(conn, answer)
			})
			return headError(t, newClient(t, o), "http://"+addr+"/")
		}
	}
	smallHead := func(tr *http.Transport) { tr.MaxResponseHeaderBytes = 4 << 10 }
	return []failure{
		{"head: reset before it", classify.PhaseProcessing, classify.ConnectionReset, get("http", "reset")},
		{"head: reset before it, TLS", classify.PhaseProcessing, classify.ConnectionReset, get("https1", "reset")},
		{"head: reset in it", classify.PhaseProcessing, classify.ConnectionReset, get("http", "reset:at=in-head")},
		{"head: reset in it, TLS", classify.PhaseProcessing, classify.ConnectionReset, get("https1", "reset:at=in-head")},
		{"head: closed before it", classify.PhaseProcessing, classify.ConnectionReset, get("http", "fin")},
		{"head: closed before it, TLS", classify.PhaseProcessing, classify.ConnectionReset, get("https1", "fin")},
		{"head: closed in it", classify.PhaseProcessing, classify.ConnectionReset, get("http", "fin:at=in-head")},
		{"head: closed in it, TLS", classify.PhaseProcessing, classify.ConnectionReset, get("https1", "fin:at=in-head")},
		{"head: closed after the status line", classify.PhaseProcessing, classify.ConnectionReset, raw("HTTP/1.1 200 OK\r\n")},
		{"head: closed after an informational one", classify.PhaseProcessing, classify.ConnectionReset, raw("HTTP/1.1 103 Early Hints\r\n\r\n")},
		// Without net/http, which returns an untyped error for a connection that was
		// closed before its first request.
		{"head: closed on accept", classify.PhaseProcessing, classify.ConnectionReset, func(t *testing.T) error {
			_, err := dialed(t, o.Addr("tcp-close")).Read(make([]byte, 1))
			return err
		}},
		{"head: closed on the next request", classify.PhaseProcessing, classify.ConnectionReset, func(t *testing.T) error {
			c, u := newClient(t, o), o.URL("http", "/s/"+key(t.Name())+"/close-idle")
			resp, err := c.Do(request(t.Context(), t, http.MethodGet, u, nil))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return headErrorOf(t, c, request(t.Context(), t, http.MethodPost, u, strings.NewReader("not to be sent twice")))
		}},
		{"head: garbage", classify.PhaseProcessing, classify.Protocol, get("http", "garbage")},
		{"head: garbage, TLS", classify.PhaseProcessing, classify.Protocol, get("https1", "garbage")},
		{"head: no status", classify.PhaseProcessing, classify.Protocol, get("http", "bad-status-line")},
		{"head: a field without a colon", classify.PhaseProcessing, classify.Protocol, get("http", "bad-header")},
		{"head: another protocol", classify.PhaseProcessing, classify.Protocol, raw("SSH-2.0-OpenSSH_9.2\r\n\r\n")},
		{"head: a status of four digits", classify.PhaseProcessing, classify.Protocol, raw("HTTP/1.1 2000 OK\r\n\r\n")},
		{"head: two lengths", classify.PhaseProcessing, classify.Protocol,
			raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")},
		{"head: an unknown transfer coding", classify.PhaseProcessing, classify.Protocol,
			raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: brotli\r\n\r\nab")},
		{"head: too large", classify.PhaseProcessing, classify.Protocol, get("http", "200:head-size=20000", smallHead)},
		{"head: too many informational ones", classify.PhaseProcessing, classify.Protocol,
			get("http", "200:early=103,early-count=100,early-size=1000", smallHead)},
		{"head: HTTP/1.1 where HTTP/2 was to be", classify.PhaseProcessing, classify.Protocol, func(t *testing.T) error {
			addr := serveRaw(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
				_, _ = io.Copy(io.Discard, conn)
			})
			return headError(t, newClient(t, o, priorKnowledge), "http://"+addr+"/")
		}},
	}
}

// streams lists failures before the HTTP/2 response head is complete.
func streams(o *origin.Origin) []failure {
	get := func(step string) func(*testing.T) error {
		return func(t *testing.T) error {
			return headError(t, newClient(t, o), o.URL("h2fault", "/s/"+key(t.Name())+"/"+step))
		}
	}
	// The request is sent once: net/http resends what it may after some of the codes.
	once := func(c *http.Client, t *testing.T, u string) error {
		return headErrorOf(t, c, request(t.Context(), t, http.MethodPost, u, struct{ io.Reader }{strings.NewReader("once")}))
	}
	rows := []failure{
		{"stream: reset of the connection", classify.PhaseProcessing, classify.ConnectionReset, get("reset")},
		{"stream: connection closed", classify.PhaseProcessing, classify.ConnectionReset, get("fin")},
		{"stream: garbage", classify.PhaseProcessing, classify.Protocol, get("garbage")},
		{"stream: DATA on stream 0", classify.PhaseProcessing, classify.Protocol, get("h2-bad-frame:fault=stream0")},
		{"stream: short SETTINGS", classify.PhaseProcessing, classify.Protocol, get("h2-bad-frame:fault=settings")},
		{"stream: a frame over the limit", classify.PhaseProcessing, classify.Protocol, get("h2-bad-frame:fault=oversize")},
		{"stream: a bad header block", classify.PhaseProcessing, classify.Protocol, get("h2-bad-frame:fault=hpack")},
		{"stream: a head without end", classify.PhaseProcessing, classify.Protocol, get("h2-huge-head")},
		{"stream: given up after an informational head", classify.PhaseProcessing, classify.ConnectionReset, get("103")},
		{"stream: cancelled", classify.PhaseProcessing, classify.Cancelled, func(t *testing.T) error {
			return headErrorOf(t, newClient(t, o), cancelWhenSent(t, o.URL("https", "/s/"+key(t.Name())+"/silent")))
		}},
	}
	for code := http2.ErrCode(0); code <= http2.ErrCodeHTTP11Required; code++ {
		if code == http2.ErrCodeRefusedStream { // below
			continue
		}
		want := classify.ConnectionReset
		switch code {
		case http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize,
			http2.ErrCodeCompression, http2.ErrCodeInadequateSecurity, http2.ErrCodeHTTP11Required:
			want = classify.Protocol
		}
		rows = append(rows, failure{fmt.Sprintf("stream: RST_STREAM %s", code), classify.PhaseProcessing, want,
			func(t *testing.T) error {
				return once(newClient(t, o), t, o.URL("h2fault", fmt.Sprintf("/s/%s/h2-rst:code=%d", key(t.Name()), code)))
			}})
	}
	for _, code := range []http2.ErrCode{http2.ErrCodeNo, http2.ErrCodeInternal, http2.ErrCodeEnhanceYourCalm} {
		rows = append(rows, failure{fmt.Sprintf("stream: GOAWAY %s, then closed", code), classify.PhaseProcessing,
			classify.ConnectionReset, func(t *testing.T) error {
				addr := serveFrames(t, func(f *http2.Framer, stream uint32) { _ = f.WriteGoAway(stream, code, nil) })
				return headError(t, newClient(t, o, priorKnowledge), "http://"+addr+"/")
			}})
	}
	// If net/http cannot resend a request, its error has no type, so the phase
	// decides. An engine that must not send twice returns an error from GetBody.
	for _, row := range []struct{ name, step string }{
		{"GOAWAY that disclaims it", "h2-goaway-forever"},
		{"GOAWAY with an error that disclaims it", "h2-goaway-forever:code=11"},
		{"RST_STREAM REFUSED_STREAM", "h2-rst:code=7"},
	} {
		url := func(t *testing.T) string { return o.URL("h2fault", "/s/"+key(t.Name())+"/"+row.step) }
		rows = append(rows, failure{"stream: " + row.name, classify.PhaseProcessing, classify.Protocol,
			func(t *testing.T) error { return once(newClient(t, o), t, url(t)) }})
	}
	return rows
}

// bodies lists failures of the body in both protocols. All are BodyInterrupted.
func bodies(o *origin.Origin) []failure {
	var rows []failure
	for _, row := range []struct{ name, listener, step string }{
		{"reset", "http", "reset:at=in-body,after=100"},
		{"reset, TLS", "https1", "reset:at=in-body,after=100"},
		{"reset of the connection, HTTP/2", "h2fault", "reset:at=in-body,after=100"},
		{"closed", "http", "fin:at=in-body,after=100"},
		{"closed, TLS", "https1", "fin:at=in-body,after=100"},
		{"closed without close_notify", "https1", "200:size=1000,cut=100,how=raw"},
		{"connection closed, HTTP/2", "h2fault", "fin:at=in-body,after=100"},
		{"short", "http", "200:size=100,length=200,close"},
		{"short, HTTP/2", "h2fault", "200:size=100,length=200"},
		{"cut before its first byte", "http", "200:size=100,cut=0"},
		{"a chunk without a size", "http", "200:size=100,chunk-fault=bad-size"},
		{"no last chunk", "http", "200:size=100,chunk-fault=no-last"},
		{"a chunk without its end", "http", "200:size=100,chunk-fault=bad-crlf"},
		{"a chunk too large for a number", "http", "200:size=100,chunk-fault=huge"},
		{"RST_STREAM NO_ERROR", "h2fault", "h2-rst:code=0,at=in-body,after=100"},
		{"RST_STREAM PROTOCOL_ERROR", "h2fault", "h2-rst:code=1,at=in-body,after=100"},
		{"RST_STREAM INTERNAL_ERROR", "h2fault", "h2-rst:code=2,at=in-body,after=100"},
		{"RST_STREAM CANCEL", "h2fault", "h2-rst:code=8,at=in-body,after=100"},
		{"RST_STREAM HTTP_1_1_REQUIRED", "h2fault", "h2-rst:code=13,at=in-body,after=100"},
		{"RST_STREAM of net/http's server", "https", "200:size=100,cut=40"},
	} {
		rows = append(rows, failure{"body: " + row.name, classify.PhaseTransfer, classify.BodyInterrupted,
			func(t *testing.T) error {
				return bodyError(t, newClient(t, o), o.URL(row.listener, "/s/"+key(t.Name())+"/"+row.step))
			}})
	}
	return rows
}

// limits lists timeouts and cancellations by the client, in both protocols.
func limits(o *origin.Origin) []failure {
	const (
		limit  = 10 * time.Second
		silent = "silent"
		stall  = "200:size=100,stall=10"
	)
	late := func(t *testing.T, u string) *http.Request {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		t.Cleanup(cancel)
		return request(ctx, t, http.MethodGet, u, nil)
	}
	nothing := func() {}
	var rows []failure
	for _, listener := range []string{"http", "https1", "https"} {
		for _, row := range []struct {
			name  string
			phase classify.Phase
			want  classify.Class
			step  string
			do    func(t *testing.T, c *http.Client, u string) error
		}{
			{"no head in time", classify.PhaseProcessing, classify.ResponseTimeout, silent, func(t *testing.T, c *http.Client, u string) error {
				transport, _ := c.Transport.(*http.Transport)
				transport.ResponseHeaderTimeout = limit
				return headError(t, c, u)
			}},
			{"no head by the deadline", classify.PhaseProcessing, classify.ResponseTimeout, silent, func(t *testing.T, c *http.Client, u string) error {
				return headErrorOf(t, c, late(t, u))
			}},
			{"no head by the client's time-out", classify.PhaseProcessing, classify.ResponseTimeout, silent, func(t *testing.T, c *http.Client, u string) error {
				c.Timeout = limit
				return headError(t, c, u)
			}},
			{"cancelled before the head", classify.PhaseProcessing, classify.Cancelled, silent, func(t *testing.T, c *http.Client, u string) error {
				return headErrorOf(t, c, cancelWhenSent(t, u))
			}},
			{"body silent until the deadline", classify.PhaseTransfer, classify.BodyTimeout, stall, func(t *testing.T, c *http.Client, u string) error {
				return bodyErrorOf(t, c, late(t, u), nothing)
			}},
			{"body silent until the client's time-out", classify.PhaseTransfer, classify.BodyTimeout, stall, func(t *testing.T, c *http.Client, u string) error {
				c.Timeout = limit
				return bodyError(t, c, u)
			}},
			{"cancelled in the body", classify.PhaseTransfer, classify.Cancelled, stall, func(t *testing.T, c *http.Client, u string) error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				return bodyErrorOf(t, c, request(ctx, t, http.MethodGet, u, nil), cancel)
			}},
		} {
			rows = append(rows, failure{"limit: " + row.name + ", " + listener, row.phase, row.want,
				inBubble(listener, func(t *testing.T, c *http.Client, o *origin.Origin) error {
					return row.do(t, c, o.URL(listener, "/s/k/"+row.step))
				})})
		}
	}
	return append(rows,
		failure{"limit: half a head in time", classify.PhaseProcessing, classify.ResponseTimeout, func(t *testing.T) error {
			c := newClient(t, o, func(tr *http.Transport) { tr.ResponseHeaderTimeout = short })
			return headError(t, c, o.URL("http", "/s/"+key(t.Name())+"/half-head"))
		}},
		failure{"limit: a read deadline of the connection", classify.PhaseTransfer, classify.BodyTimeout, func(t *testing.T) error {
			conn := dialed(t, o.Addr("tcp-silent"))
			if err := conn.SetReadDeadline(time.Now().Add(short)); err != nil {
				t.Fatal(err)
			}
			_, err := conn.Read(make([]byte, 1))
			return err
		}})
}
