package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/observe"
	"fetchd/test/wait"
)

// parent is the trace of a caller.
const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "00-" + traceID + "-b7ad6b7169203331-01"
)

// observed is a rig whose server records metrics and traces.
type observed struct {
	*rig
	observer *observe.Observer
	spans    *tracetest.InMemoryExporter
}

func newObserved(t *testing.T, change ...func(*server.Config)) *observed {
	t.Helper()
	spans := &kept{InMemoryExporter: tracetest.NewInMemoryExporter()}
	o, err := observe.New(observe.Config{Version: "v0", Exporter: spans})
	must(t, err)
	t.Cleanup(func() { _ = o.Shutdown(context.Background()) }) // a test looks at its error itself
	return &observed{newRig(t, append(change, func(cfg *server.Config) { cfg.Observe = o })...), o, spans.InMemoryExporter}
}

// kept is an exporter that keeps its spans after its shutdown.
type kept struct{ *tracetest.InMemoryExporter }

// Shutdown implements sdktrace.SpanExporter.
func (*kept) Shutdown(context.Context) error { return nil }

// series returns the values of /metrics, by name with labels.
func (o *observed) series() map[string]float64 {
	o.Helper()
	resp, err := o.HTTPClient.Get(o.URL + "/metrics")
	must(o, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		o.Fatalf("GET /metrics = %s", resp.Status)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil && at > 0 {
			all[lines.Text()[:at]] = v
		}
	}
	return all
}

// want checks the values of series. The page may be a second old, so it looks until they are right.
func (o *observed) want(want map[string]float64) {
	o.Helper()
	wrong := func() (all []string) {
		now := o.series()
		for name, v := range want {
			if got, there := now[name]; !there || got != v {
				all = append(all, fmt.Sprintf("%s = %v, there: %v; want %v", name, got, there, v))
			}
		}
		return all
	}
	ctx, cancel := context.WithTimeout(o.Context(), 20*time.Second)
	defer cancel()
	var last []string
	if wait.Until(ctx, 50*time.Millisecond, func() bool { last = wrong(); return len(last) == 0 }) != nil {
		o.Errorf("%s", strings.Join(last, "\n"))
	}
}

// await reads the series until ok returns true.
func (o *observed) await(ok func(map[string]float64) bool) {
	o.Helper()
	begun := time.Now()
	for all := o.series(); !ok(all); all = o.series() {
		if time.Since(begun) > 20*time.Second {
			o.Fatalf("after 20 s: in flight %v, held back %v, unread %v, draining %v", all["fetchd_fetches_in_flight"],
				all[`fetchd_memory_bytes{kind="hold_back"}`], all[`fetchd_memory_bytes{kind="answer"}`], all["fetchd_draining"])
		}
	}
}

// begin calls Fetch and reads nothing. end ends the call.
func (o *observed) begin(path string) (end func()) {
	o.Helper()
	ctx, cancel := context.WithCancel(o.Context())
	stream := o.mustStream(ctx, o.request(path))
	return func() {
		cancel()
		_ = drain(stream) // CANCELLED
	}
}

// everyWay fetches a path through each method of each API.
func (o *observed) everyWay(ctx context.Context, path string) {
	o.Helper()
	in := o.request(path)
	o.fetch(ctx, in)
	if _, err := o.Client.FetchUnary(ctx, in); err != nil {
		o.Errorf("FetchUnary = %v", err)
	}
	many := o.many(ctx)
	many.start(&pb.Task{Tag: "a", Request: in}, &pb.Task{Tag: "b", Request: in})
	many.finish("a", "b")
	for _, call := range []string{"fetch", "fetch:unary"} {
		resp := o.post(ctx, "/v1/"+call, o.json(in), func(req *http.Request) {
			if sent, _ := metadata.FromOutgoingContext(ctx); sent != nil {
				req.Header.Set("Traceparent", parent)
			}
		})
		_, _ = io.Copy(io.Discard, resp.Body) // the outcome is in the metrics
	}
}

// TestMetrics checks the metrics of every API: fetches, calls, refusals, and what the server holds.
func TestMetrics(t *testing.T) {
	t.Parallel()
	stored := withStores(t, t.TempDir())
	o := newObserved(t, func(cfg *server.Config) { cfg.MaxFetches = 1; stored(cfg) })
	const method = `grpc_service="fetchd.v1.FetchService"`
	o.want(map[string]float64{
		`fetchd_build_info{version="v0"}`: 1, "fetchd_fetches_limit": 1, "fetchd_fetches_in_flight": 0, "fetchd_draining": 0,
		`fetchd_memory_bytes{kind="hold_back"}`: 0, "fetchd_memory_budget_bytes": 512 << 20, `fetchd_memory_bytes{kind="answer"}`: 0,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="FetchMany",` + method + `,grpc_type="bidi_stream"}`:                     0,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Check",grpc_service="grpc.health.v1.Health",grpc_type="server_stream"}`: 0,
	})
	o.everyWay(t.Context(), "/s/k/200:size=10")
	o.want(map[string]float64{
		`fetchd_fetches_total{error_class="none",outcome="success"}`: 6, `fetchd_attempts_total{decision="no_failure",error_class="none"}`: 6,
		`fetchd_fetch_seconds_count{outcome="success"}`: 6, "fetchd_body_bytes_total": 60, "fetchd_encoded_bytes_total": 60,
		"fetchd_connections_open": 1, "fetchd_connections_idle": 1, "fetchd_connections_dialled_total": 1, "fetchd_connections_reused_total": 5, "fetchd_connections_stale_total": 0, "fetchd_connections_surplus_total": 0,
		`grpc_server_started_total{grpc_method="Fetch",` + method + `,grpc_type="server_stream"}`:                  1,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Fetch",` + method + `,grpc_type="server_stream"}`:   1,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="FetchUnary",` + method + `,grpc_type="unary"}`:      1,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="FetchMany",` + method + `,grpc_type="bidi_stream"}`: 1,
	})
	o.mustUnary(toStore(o.request("/s/k/200:size=10"), "open", "k"))
	o.mustUnary(toStore(o.request("/s/k/200:size=10"), "bucket", "k"))
	o.want(map[string]float64{
		`fetchd_store_up{store="open"}`: 1, `fetchd_store_uploads_in_flight{store="open"}`: 0, `fetchd_store_bytes_total{store="open"}`: 10,
		`fetchd_store_uploads_total{result="committed",store="open"}`: 1, `fetchd_store_uploads_total{result="aborted",store="open"}`: 0,
		`fetchd_store_uploads_total{result="failed",store="bucket"}`:         1,
		`fetchd_fetches_total{error_class="store_failure",outcome="failed"}`: 1,
	})
	o.await(func(all map[string]float64) bool { return all[`fetchd_store_request_errors_total{store="bucket"}`] > 0 })

	held := o.begin("/s/held/200:size=100000,stall=50000")
	o.await(func(all map[string]float64) bool {
		return all["fetchd_fetches_in_flight"] == 1 && all[`fetchd_memory_bytes{kind="hold_back"}`] > 0
	})
	_, err := o.Client.FetchUnary(t.Context(), o.request("/s/more/200"))
	wantCode(t, "one fetch too many", err, codes.ResourceExhausted)
	o.want(map[string]float64{`fetchd_refused_total{reason="too_many_fetches"}`: 1, `fetchd_refused_total{reason="other"}`: 0,
		`grpc_server_handled_total{grpc_code="ResourceExhausted",grpc_method="FetchUnary",` + method + `,grpc_type="unary"}`: 1})
	held()
	o.await(func(all map[string]float64) bool {
		return all["fetchd_fetches_in_flight"] == 0 && all[`fetchd_memory_bytes{kind="hold_back"}`] == 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	many := o.many(ctx)
	many.start(o.task("a", "/s/unread/200:size=1000000"))
	o.await(func(all map[string]float64) bool { return all[`fetchd_memory_bytes{kind="answer"}`] > 0 })
	cancel()
	_ = many.end() // CANCELLED
	o.await(func(all map[string]float64) bool {
		runtime.GC() // grpc-go drops unsent messages without releasing them
		return all[`fetchd_memory_bytes{kind="answer"}`] == 0
	})

	slow := o.begin("/s/slow/200:size=100000,stall=50000")
	o.awaitRequest("slow")
	down := o.startShutDown()
	o.await(func(all map[string]float64) bool { return all["fetchd_draining"] == 1 })
	slow()
	o.HTTPClient.CloseIdleConnections()
	down()
}

// TestTraces checks that every API continues the trace of the caller, and that the origin is not told.
func TestTraces(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	begun := time.Now()
	o.everyWay(metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent), "/s/k/200")
	must(t, o.observer.Shutdown(t.Context()))
	names := map[string]int{}
	for _, s := range o.spans.GetSpans() {
		names[s.Name]++
		if s.SpanContext.TraceID().String() != traceID || s.StartTime.Before(begun) || s.EndTime.After(time.Now()) {
			t.Errorf("%s from %s to %s of trace %s, want it now and the caller's", s.Name, s.StartTime, s.EndTime, s.SpanContext.TraceID())
		}
	}
	if names["fetch"] != 6 || names["attempt"] != 6 || names["GET"] != 6 {
		t.Errorf("spans %v, want 6 of fetches, attempts and hops", names)
	}
	for _, req := range o.Origin.Requests("k") {
		if got := req.Header.Get("Traceparent"); got != "" && got != parent {
			t.Errorf("the origin was sent traceparent %q, want none but the caller's header", got)
		}
	}
}
