package fetch_test

import (
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// rawOrigin returns a request of a canned origin.
func rawOrigin(t *testing.T, answer string) *fetch.Request {
	t.Helper()
	r := get(t, "http://"+canned(t, answer)+"/")
	r.Policy.BaseDelay, r.Policy.MaxAttempts = 0, 1
	return r
}

// TestFramings sends messages that break the rules of RFC 9112, or come near it,
// byte by byte as they stand here.
func TestFramings(t *testing.T) {
	t.Parallel()
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, row := range []struct {
		name, answer string
		class        classify.Class // none: success
		body         string
	}{
		{"nothing", "", classify.ConnectionReset, ""},
		{"half a version", "HTT", classify.ConnectionReset, ""},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Le", classify.ConnectionReset, ""},
		{"a head without its end", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", classify.ConnectionReset, ""},
		{"another protocol", "SSH-2.0-OpenSSH_9.6\r\n", classify.Protocol, ""},
		{"HTTP/0.9", "<html>hello</html>\r\n\r\n", classify.Protocol, ""},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nhello", 0, "hello"},
		{"HTTP/0.9 in a status line", "HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"HTTP/1.9 in a status line", "HTTP/1.9 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 0, "ok"},
		{"HTTP/2.0 in a status line", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"HTTP/2.0 and no length", "HTTP/2.0 200 OK\r\n\r\nhello", classify.Protocol, ""},
		{"HTTP/2.0 and a failed status", "HTTP/2.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"HTTP/3.0 in a status line", "HTTP/3.0 200 OK\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"HTTP/x", "HTTP/x.y 200 OK\r\n\r\n", classify.Protocol, ""},
		{"lower case", "http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"no status", "HTTP/1.1 \r\n\r\n", classify.Protocol, ""},
		{"a status of two digits", "HTTP/1.1 20 OK\r\n\r\n", classify.Protocol, ""},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", classify.Protocol, ""},
		{"a status that is not a number", "HTTP/1.1 two OK\r\n\r\n", classify.Protocol, ""},
		{"a negative status", "HTTP/1.1 -20 OK\r\n\r\n", classify.Protocol, ""},
		{"status 099", "HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"status 600", "HTTP/1.1 600 No\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 0, "ok"},
		{"a header without colon", "HTTP/1.1 200 OK\r\nNonsense\r\n\r\n", classify.Protocol, ""},
		{"a space before the colon: no such header", "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\nok", 0, "ok"},
		{"a folded header", "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 2\r\n\r\nok", 0, "ok"},
		{"the first header folded", "HTTP/1.1 200 OK\r\n X-A: a\r\n\r\n", classify.Protocol, ""},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 0, "ok"},
		{"an endless head", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaaa\r\n", 4000) + "\r\n", classify.Protocol, ""},
		{"endless informational responses", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5000), classify.Protocol, ""},
		{"one informational answer", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, "ok"},
		{"sixteen informational answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 16) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, "ok"},
		{"seventeen informational answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 17) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", classify.Protocol, ""},
		{"two lengths that differ", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", classify.Protocol, ""},
		{"two lengths that agree", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 0, "ok"},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", classify.Protocol, ""},
		{"a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", classify.Protocol, ""},
		{"a length that is not a number", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n", classify.Protocol, ""},
		{"a length that overflows", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", classify.Protocol, ""},
		{"a length over the limit", "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", classify.BodyTooLarge, ""},
		{"an unknown transfer coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: smoke\r\n\r\n", classify.Protocol, ""},
		{"two transfer codings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", classify.Protocol, ""},
		{"length and chunks: the chunks count", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 0, "ok"},
		{"a body shorter than its length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", classify.BodyInterrupted, ""},
		{"a body longer than its length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokay", 0, "ok"},
		{"chunks", chunked + "1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", 0, "ok"},
		{"no last chunk", chunked + "2\r\nok\r\n", classify.BodyInterrupted, ""},
		{"a last chunk without its end", chunked + "2\r\nok\r\n0\r\n", classify.BodyInterrupted, ""},
		{"a chunk size that is not a number", chunked + "zz\r\nok\r\n0\r\n\r\n", classify.BodyInterrupted, ""},
		{"a chunk size that overflows", chunked + "fffffffffffffffff\r\nok\r\n0\r\n\r\n", classify.BodyInterrupted, ""},
		{"a negative chunk size", chunked + "-2\r\nok\r\n0\r\n\r\n", classify.BodyInterrupted, ""},
		{"a chunk longer than its size", chunked + "2\r\nokay\r\n0\r\n\r\n", classify.BodyInterrupted, ""},
		{"an endless chunk extension", chunked + "2;" + strings.Repeat("x", 100000) + "\r\nok\r\n0\r\n\r\n", classify.BodyInterrupted, ""},
		{"a trailer", chunked + "2\r\nok\r\n0\r\nX-A: a\r\n\r\n", 0, "ok"},
		{"a trailer that is broken", chunked + "2\r\nok\r\n0\r\nnonsense\r\n\r\n", classify.BodyInterrupted, ""},
		{"a 204 with a body", "HTTP/1.1 204 No Content\r\n\r\nbody", 0, ""},
		{"a 101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", classify.Protocol, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, fetch.Config{Egress: unrestricted})
			var body []byte
			out := c.Fetch(t.Context(), rawOrigin(t, row.answer), func(e fetch.Event) error {
				if chunk, ok := e.(fetch.BodyChunk); ok {
					body = append(body, chunk.Data...)
				}
				return nil
			})
			class := classOf(out.Failure)
			if class != row.class || string(body) != row.body {
				t.Errorf("class %s (%+v), body %q, want %s, %q", class, out.Failure, body, row.class, row.body)
			}
		})
	}
}

// TestInformationalHTTP2 has sixteen 1xx responses come over HTTP/2, and one more.
func TestInformationalHTTP2(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.request("https", "/s/k/200:early=103,early-count=16")
	if res := w.run(t.Context(), r); res.Kind != classify.Success {
		t.Errorf("16: %+v, want success", res.Failure)
	}
	r = w.request("h2fault", "/s/k/200:early=103,early-count=17")
	r.Policy.MaxAttempts = 1
	if f := w.run(t.Context(), r).Failure; f == nil || f.Class != classify.Protocol || f.Reason != "too_many_informational_responses" {
		t.Errorf("17: %+v, want protocol, too_many_informational_responses", f)
	}
}
