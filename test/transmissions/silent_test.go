package transmissions

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/test/rig"
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
			var slow sync.WaitGroup
			o := start(t, script{http1: answer1, http2: func(f *frames, r request) bool {
				switch {
				case r.path == "/slow":
					slow.Go(func() {
						_ = f.head(r.stream, false, "200")
						_ = f.write(func() error { return f.WriteData(r.stream, false, []byte("/sl")) })
						<-reached
						_ = f.write(func() error { return f.WriteData(r.stream, true, []byte("ow")) })
					})
				case r.connection == 1 && r.path == "/silent":
				case r.path == "/silent":
					close(reached)
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
			rig.Until(t.Context(), t, "the slow response has begun", func() bool { return len(o.requests("/slow")) == 1 })
			r := newRequest(t, p.profile, http.MethodGet, o.url+"/silent")
			r.Policy.MaxAttempts, r.HeaderTimeout = 3, time.Second
			e := run(t.Context(), client, r)
			if e.Kind != classify.Success || e.Attempts != 2 || e.attempts[0].Failure.Class != classify.ResponseTimeout {
				t.Errorf("%s after %d attempts, %+v: want RESPONSE_TIMEOUT and then success", e.Kind, e.Attempts, e.Failure)
				close(reached)
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
