package transmissions

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
)

// TestSilentConnection lets a connection of HTTP/2 fall silent after one good fetch, as if a NAT had
// forgotten it. The attempt that meets the silence ends as RESPONSE_TIMEOUT, and the next one succeeds
// over a new connection. A response that another fetch is reading from the silent connection goes on.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			reached := make(chan struct{}) // the second connection was used
			reach := sync.OnceFunc(func() { close(reached) })
			var slow sync.WaitGroup
			o := start(t, script{http1: answer1, http2: func(f *frames, r request) bool {
				switch {
				case r.path == "/slow":
					slow.Go(func() {
						_ = f.head(r.stream, false, "200")
						_ = f.write(func() error { return f.WriteData(r.stream, false, []byte("/sl")) })
						_ = f.write(func() error { return f.WritePing(false, [8]byte{1}) })
						<-reached
						_ = f.write(func() error { return f.WriteData(r.stream, true, []byte("ow")) })
					})
				case r.connection == 1 && r.path == "/silent":
					return silent2(f, r)
				case r.path == "/silent":
					reach()
					return answer2(f, r)
				default:
					return answer2(f, r)
				}
				return true
			}})
			client := newClient(t)
			warm(t, client, o)

			var reader ending
			slow.Go(func() {
				r := newRequest(t, p.profile, http.MethodGet, o.url+"/slow")
				r.Policy.MaxAttempts = 1
				reader = run(t.Context(), client, r)
			})
			until(t, "the client has read the start of the slow response", func() bool { return len(o.requests(pingAnswer)) == 1 })
			r := newRequest(t, p.profile, http.MethodGet, o.url+"/silent")
			r.Policy.MaxAttempts, r.HeaderTimeout = 3, 2*time.Second
			e := run(t.Context(), client, r)
			if e.Kind != classify.Success || e.Attempts != 2 || e.attempts[0].Failure.Class != classify.ResponseTimeout {
				t.Errorf("%s after %d attempts, %+v: want RESPONSE_TIMEOUT and then success", e.Kind, e.Attempts, e.Failure)
				reach()
			}
			slow.Wait()
			if reader.Kind != classify.Success || string(reader.InlineBody) != "/slow" || reader.sent() != 1 {
				t.Errorf("the slow fetch: %s, %q, %+v: want success", reader.Kind, reader.InlineBody, reader.Failure)
			}
			var on []int
			for _, r := range append(o.requests("/silent"), o.requests("/slow")...) {
				on = append(on, r.connection)
			}
			if want := []int{1, 2, 1}; !slices.Equal(on, want) {
				t.Errorf("the requests came over the connections %v, want %v", on, want)
			}
		})
	}
}

// TestSickConnections checks that no request goes over a connection of HTTP/2 on which a response has
// stalled, or that has broken a rule of the protocol. The latter is closed.
func TestSickConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		class  classify.Class
		answer func(*frames, request) bool
	}{
		{"no response", classify.ResponseTimeout, silent2},
		{"no body", classify.BodyTimeout, func(f *frames, r request) bool { return f.head(r.stream, false, "200") == nil && silent2(f, r) }},
		{"a status that is not a number", classify.Protocol, func(f *frames, r request) bool { return f.head(r.stream, false, "abc") == nil }},
		{"a field name in capitals", classify.Protocol, func(f *frames, r request) bool {
			return f.write(func() error { return headers(true, ":status", "200", "Big", "x")(f, r) }) == nil
		}},
		{"DATA without a head", classify.Protocol, func(f *frames, r request) bool {
			return f.write(func() error { return f.WriteData(r.stream, false, []byte("x")) }) == nil
		}},
		{"DATA of no stream", classify.Protocol, func(f *frames, _ request) bool {
			return f.write(func() error { return f.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) }) == nil
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := start(t, script{http1: answer1, http2: func(f *frames, r request) bool {
				if r.path == "/sick" {
					return row.answer(f, r)
				}
				return answer2(f, r)
			}})
			client := newClient(t)
			warm(t, client, o)
			r := newRequest(t, classify.Standard, http.MethodGet, o.url+"/sick")
			r.Policy.MaxAttempts, r.HeaderTimeout, r.IdleTimeout = 1, 2*time.Second, 2*time.Second
			if e := run(t.Context(), client, r); e.class() != row.class.String() || e.sent() != 1 {
				t.Errorf("%s, %s, %d requests, %+v: want %s", e.Kind, e.class(), e.sent(), e.Failure, row.class)
			}
			warm(t, client, o)
			if got := o.requests("/warm"); got[1].connection != 2 {
				t.Errorf("the next request came over connection %d, want a new one", got[1].connection)
			}
			if row.class == classify.Protocol {
				until(t, "the client has closed the connection", func() bool { return !o.isOpen(1) })
			}
		})
	}
}

// TestLateBodyOfRedirect checks that the next request of a chain goes over the same connection of
// HTTP/2 if the body of the redirect is late. The fetch does not need that body, so the origin is not silent.
func TestLateBodyOfRedirect(t *testing.T) {
	t.Parallel()
	o := start(t, script{http1: answer1, http2: func(f *frames, r request) bool {
		if r.path == "/redirect" {
			return f.write(func() error {
				return headers(true, ":status", "302", "location", "/target", "content-length", "5")(f, r)
			}) == nil
		}
		return answer2(f, r)
	}})
	client := newClient(t)
	warm(t, client, o)
	r := newRequest(t, classify.Standard, http.MethodGet, o.url+"/redirect")
	if e := run(t.Context(), client, r); e.Kind != classify.Success || e.sent() != 2 {
		t.Errorf("%s, %d requests, %+v: want success with 2", e.Kind, e.sent(), e.Failure)
	}
	if got := o.requests("/target"); len(got) != 1 || got[0].connection != 1 {
		t.Errorf("requests for the target: %+v, want one over the first connection", got)
	}
}
