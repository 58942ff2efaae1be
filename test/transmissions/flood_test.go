package transmissions

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/test/rig"
)

// flood is what an origin of HTTP/2 sends without end, although the fetch is over.
type flood struct {
	name string
	// begin is the start of the response, or nil for a complete one.
	begin func(*frames, request) bool
	// frame writes one frame.
	frame func(*frames, request) error
}

// tooLong sends a body over the limit of the fetch, so that the client cancels the stream.
func tooLong(f *frames, r request) bool {
	return f.head(r.stream, false, "200") == nil &&
		f.write(func() error { return f.WriteData(r.stream, false, make([]byte, 8<<10)) }) == nil
}

// headers writes a header block.
func headers(end bool, pairs ...string) func(*frames, request) error {
	return func(f *frames, r request) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: r.stream, BlockFragment: f.encode(pairs...), EndHeaders: end})
	}
}

var floods = []flood{
	{"DATA behind a complete response", nil, func(f *frames, r request) error { return f.WriteData(r.stream, false, make([]byte, 8<<10)) }},
	{"DATA of a cancelled stream", tooLong, func(f *frames, r request) error { return f.WriteData(r.stream, false, make([]byte, 8<<10)) }},
	{"empty DATA of a cancelled stream", tooLong, func(f *frames, r request) error { return f.WriteData(r.stream, false, nil) }},
	{"DATA of padding alone", tooLong, func(f *frames, r request) error { return f.WriteDataPadded(r.stream, false, nil, make([]byte, 255)) }},
	{"103 in place of a response", headAlone, headers(true, ":status", "103")},
	{"103 behind a complete response", nil, headers(true, ":status", "103")},
	{"trailers of a cancelled stream", tooLong, headers(true, "a", "b")},
	{"CONTINUATION", func(f *frames, r request) bool {
		return f.write(func() error { return headers(false, ":status", "200")(f, r) }) == nil
	},
		func(f *frames, r request) error {
			return f.WriteContinuation(r.stream, false, f.encode("a", strings.Repeat("b", 100)))
		}},
	{"SETTINGS", nil, func(f *frames, _ request) error { return f.WriteSettings() }},
	{"answers to SETTINGS", nil, func(f *frames, _ request) error { return f.WriteSettingsAck() }},
	{"PING", nil, func(f *frames, _ request) error { return f.WritePing(false, [8]byte{2}) }},
	{"answers to PING", nil, func(f *frames, _ request) error { return f.WritePing(true, [8]byte{3}) }},
	{"WINDOW_UPDATE of the connection", nil, func(f *frames, _ request) error { return f.WriteWindowUpdate(0, 1) }},
	{"WINDOW_UPDATE of the stream", nil, func(f *frames, r request) error { return f.WriteWindowUpdate(r.stream, 1) }},
	{"RST_STREAM", nil, func(f *frames, r request) error { return f.WriteRSTStream(r.stream, http2.ErrCodeCancel) }},
	{"PRIORITY", nil, func(f *frames, r request) error { return f.WritePriority(r.stream, http2.PriorityParam{Weight: 1}) }},
	{"frames of an unknown type", nil, func(f *frames, r request) error { return f.WriteRawFrame(0xbe, 0, r.stream, make([]byte, 100)) }},
	{"GOAWAY", nil, func(f *frames, r request) error { return f.WriteGoAway(r.stream, http2.ErrCodeNo, nil) }},
}

// headAlone begins no response.
func headAlone(*frames, request) bool { return true }

// TestFloods checks that the client closes a connection on which the origin goes on after the outcome.
// The time is a second; the bound of the test leaves room for a busy machine, and does not count on one
// without CPU time left.
func TestFloods(t *testing.T) {
	t.Parallel()
	const bound = 5 * time.Second
	for _, row := range floods {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var flooding sync.WaitGroup
			t.Cleanup(flooding.Wait) // after the origin has closed its connections
			closed := make(chan time.Time, 1)
			o := start(t, script{http1: answer1, http2: func(f *frames, r request) bool {
				if r.path != "/flood" {
					return answer2(f, r)
				}
				if row.begin == nil && !answer2(f, r) || row.begin != nil && !row.begin(f, r) {
					return false
				}
				flooding.Go(func() {
					for f.write(func() error { return row.frame(f, r) }) == nil {
					}
					closed <- time.Now()
				})
				return true
			}})
			client, clock := newClient(t), rig.StartClock(t)
			r := newRequest(t, classify.Standard, http.MethodGet, o.url+"/flood")
			r.Policy.MaxAttempts, r.MaxBodyBytes, r.HeaderTimeout = 1, 4<<10, 2*time.Second
			e := run(t.Context(), client, r)
			ended := time.Now()
			select {
			case at := <-closed:
				after := max(at.Sub(ended), 0).Round(100 * time.Microsecond)
				t.Logf("%s; the connection was closed %v later", e.class(), after)
				clock.AtMost("time to the close of the connection", after, time.Second, bound)
			case <-time.After(time.Minute):
				t.Errorf("%s; the connection is open a minute later", e.class())
			}
			if row.begin == nil && e.Kind != classify.Success {
				t.Errorf("%s, %+v: want success, because the response is complete", e.Kind, e.Failure)
			}
			warm(t, client, o) // sends one request, over a connection that works
		})
	}
}
