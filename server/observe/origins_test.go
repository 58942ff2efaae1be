package observe_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"fetchd/fetch"
	"fetchd/server/observe"
)

// TestTraceParentOfOrigins checks that traceparent is sent if configured, with every
// attempt and hop, and not to another origin.
func TestTraceParentOfOrigins(t *testing.T) {
	t.Parallel()
	asked := func(cfg *observe.Config) { cfg.TraceOrigins = true }
	own := func(req *fetch.Request) { req.Header = http.Header{"Traceparent": {"the caller's"}} }
	for _, row := range []struct {
		name, path, parent string
		config             func(*observe.Config)
		change             func(*fetch.Request)
		want               []string // prefix for each request
	}{
		{"not asked for", "/r/k/302/1/503/200", parent, func(*observe.Config) {}, nil, []string{"", "", "", ""}},
		{"attempts and hops", "/r/k/302/1/503/200", parent, asked, nil, []string{traceID, traceID, traceID, traceID}},
		{"not sampled", "/s/k/200", unasked, asked, nil, []string{traceID}},
		{"another origin", "/cross/k/302/https/200", parent, asked, nil, []string{traceID, ""}},
		{"another origin and credentials", "/cross/k/302/https/200", parent, asked,
			func(req *fetch.Request) { req.ForwardCredentials = true }, []string{traceID, ""}},
		{"the caller's own", "/s/k/200", parent, asked, own, []string{"the caller's"}},
		{"the caller's own, another origin", "/cross/k/302/https/200", parent, asked, own, []string{"the caller's", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := traced(t, row.config)
			r.context = metadata.NewIncomingContext(r.context, metadata.Pairs("traceparent", row.parent))
			out := r.fetch("http", row.path, func(req *fetch.Request) {
				if row.change != nil {
					row.change(req)
				}
			})
			sent := r.origin.Requests("k")
			if len(sent) != len(row.want) {
				t.Fatalf("%s: the origin saw %d requests, want %d", out.Kind, len(sent), len(row.want))
			}
			for i, req := range sent {
				got := strings.TrimPrefix(req.Header.Get("Traceparent"), "00-")
				if got != row.want[i] && (row.want[i] != traceID || !strings.HasPrefix(got, traceID+"-") || strings.Contains(got, spanID)) {
					t.Errorf("request %d had traceparent %q, want it of %q", i+1, got, row.want[i])
				}
				if traceID == row.want[i] && !strings.HasSuffix(got, row.parent[len(row.parent)-3:]) {
					t.Errorf("request %d had traceparent %q, want the flags of %q", i+1, got, row.parent)
				}
				for name := range req.Header {
					if name == "Tracestate" || name == "Baggage" {
						t.Errorf("request %d had %s", i+1, name)
					}
				}
			}
		})
	}
}
