package observe_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/observe"
)

// secret must not appear in any label or span.
const secret = "s3cr3t-m4rk3r"

// closed lists the allowed values of each of our labels.
func closed() map[string][]string {
	values := map[string][]string{
		"error_class": {"none"}, "decision": {"none"}, "version": {"v0", "devel"},
		"phase": {"resolve", "connect", "tls", "processing", "transfer"},
		"reason": {"too_many_fetches", "too_many_fetches_of_caller", "too_many_streams", "too_many_streams_of_caller", "quota", "policy", "cancelled_calls", "strangers_calls", "conns_of_caller", "too_many_conns", "unauthenticated",
			"memory", "target_blocked", "other"}, "caller": {"other"},
	}
	for n := range uint8(64) {
		values["outcome"] = append(values["outcome"], classify.Kind(n).String())
		values["error_class"] = append(values["error_class"], classify.Class(n).String())
		values["decision"] = append(values["decision"], classify.Verdict(n).String())
		values["source"] = append(values["source"], classify.DelaySource(n).String())
	}
	for label, list := range values {
		values[label] = slices.DeleteFunc(list, func(v string) bool { return v == "" })
	}
	return values
}

// checkLabels compares the labels of every series with the closed sets.
func (r *rig) checkLabels() {
	r.Helper()
	families, err := r.observer.Gatherer().Gather()
	must(r, err)
	values := closed()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if strings.Contains(m.String(), secret) {
				r.Errorf("%s holds the secret: %s", f.GetName(), m)
			}
			for _, l := range m.GetLabel() {
				if strings.HasPrefix(f.GetName(), "fetchd_") && !slices.Contains(values[l.GetName()], l.GetValue()) {
					r.Errorf("%s has %s=%q, which is not among %q", f.GetName(), l.GetName(), l.GetValue(), values[l.GetName()])
				}
			}
		}
	}
}

// TestCallers checks that the callers that are set have their own series, and all others one.
func TestCallers(t *testing.T) {
	t.Parallel()
	r := counted(t)
	req, e, out := told(t)
	count := func() {
		for i, name := range []string{"nightly", "batch", "192.0.2.7", "2001:db8::/64", ""} {
			r.observer.Refused(name, "MEMORY")
			for range i + 1 {
				req.Caller = name
				r.observer.Attempted(r.context, req, e)
				r.observer.Fetched(r.context, req, out)
			}
		}
	}
	r.observer.Gauges(observe.Gauges{Callers: func() map[string]int { return map[string]int{"nightly": 3, "192.0.2.7": 2, "192.0.2.8": 1} }})
	want := func(step string, series map[string]float64) {
		t.Helper()
		all := r.series()
		for name, want := range series {
			got, ok := all[name]
			if !ok && want >= 0 || ok && got != want {
				t.Errorf("%s: %s is %v, %t, want %v (negative: absent)", step, name, got, ok, want)
			}
		}
	}
	r.observer.SetCallers([]string{"nightly", "batch", "nightly", "\xff"})
	count()
	r.observer.Fetched(r.context, &fetch.Request{Caller: "batch"}, &fetch.Outcome{Kind: classify.Failed, Failure: &fetch.Failure{Class: classify.TargetBlocked}})
	want("two callers", map[string]float64{
		"fetchd_caller_fetches_total{caller=nightly,outcome=success}": 1, "fetchd_caller_fetches_total{caller=batch,outcome=success}": 2,
		"fetchd_caller_fetches_total{caller=other,outcome=success}": 12, "fetchd_caller_attempts_total{caller=other}": 12,
		"fetchd_caller_body_bytes_total{caller=batch}": 8192, "fetchd_caller_refused_total{caller=nightly,reason=memory}": 1,
		"fetchd_caller_refused_total{caller=other,reason=memory}": 3, "fetchd_caller_fetches_in_flight{caller=nightly}": 3,
		"fetchd_caller_refused_total{caller=batch,reason=target_blocked}": 1, "fetchd_caller_refused_total{caller=other,reason=target_blocked}": 0,
		"fetchd_caller_fetches_in_flight{caller=batch}": 0, "fetchd_caller_fetches_in_flight{caller=other}": 3,
	})
	r.observer.SetCallers([]string{"batch", "other"})
	count()
	want("one caller, and one with the name of all others", map[string]float64{
		"fetchd_caller_fetches_total{caller=nightly,outcome=success}": -1, "fetchd_caller_fetches_total{caller=batch,outcome=success}": 4,
		"fetchd_caller_fetches_total{caller=other,outcome=success}": 25, "fetchd_caller_fetches_in_flight{caller=other}": 6,
	})
	var many []string
	for i := range 10_000 {
		many = append(many, fmt.Sprint("team ", i))
	}
	r.observer.SetCallers(many)
	n := 0
	for name := range r.series() {
		if strings.HasPrefix(name, "fetchd_caller_attempts_total") {
			n++
		}
	}
	if n != 257 {
		t.Errorf("10,000 callers have %d series of attempts, want 256 and one for the others", n)
	}
	r.observer.SetCallers(nil)
	want("none", map[string]float64{"fetchd_caller_attempts_total{caller=batch}": -1, "fetchd_caller_attempts_total{caller=other}": 25})
}

// answers are hostile status lines and headers.
var answers = []string{
	"599 x", "299 " + secret, "999 x", "200 x\r\nContent-Encoding: " + secret, "200 x\r\nContent-Type: " + secret,
	"302 x\r\nLocation: http://u:" + secret + "@[", "302 x\r\nLocation: http://u:" + secret + "@127.0.0.1/",
	"302 x\r\nLocation: /next?q=" + secret + "#" + secret, "302 x\r\nLocation: /\xff\xfe?q=" + secret,
	"429 x\r\nRetry-After: " + secret, "401 x\r\nWWW-Authenticate: " + secret, "200 x\r\nContent-Length: " + secret,
	"200 x\r\nSet-Cookie: " + secret + "=" + secret, secret,
}

// hostile makes fetches with hostile values from the caller and from the origin.
func (r *rig) hostile() {
	r.Helper()
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n, err := strconv.Atoi(req.URL.Path[1:])
		if err != nil {
			return // after a redirect
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 " + answers[n] + "\r\nConnection: close\r\n\r\n" + secret))
	})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(r.raw) }()
	for i := range answers {
		r.fetch("http", "/"+strconv.Itoa(i), func(req *fetch.Request) {
			req.URL.Host = r.raw.Addr().String()
			req.ID, req.Labels = secret, map[string]string{secret: secret}
			req.Method = http.MethodOptions
			req.Header = http.Header{"X-" + secret: {secret}, "Authorization": {"Bearer " + secret}, "User-Agent": {secret}}
			req.URL.RawQuery, req.URL.Fragment = "token="+secret, secret
			req.Cookies, req.Policy.MaxAttempts, req.Events = true, 2, fetch.All
		})
	}
	_ = s.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		r.Errorf("Serve = %v", err)
	}
}

// TestLabelsAreClosed checks that hostile callers and origins and unknown numbers add no
// label values.
func TestLabelsAreClosed(t *testing.T) {
	t.Parallel()
	r := counted(t)
	r.hostile()
	req, e, out := told(t)
	for n := range uint8(255) {
		e.Decision = classify.Decision{Class: classify.Class(n), Verdict: classify.Verdict(n), DelaySource: classify.DelaySource(n)}
		r.observer.Attempted(r.context, req, e)
		e.Decision.Verdict = classify.Retry
		r.observer.Attempted(r.context, req, e)
		req.Caller = secret + strconv.Itoa(int(n))
		out.Kind, out.Failure, out.Body.Size = classify.Kind(n), &fetch.Failure{Class: classify.Class(n)}, -int64(n)
		r.observer.Fetched(r.context, req, out)
		r.observer.Refused(secret, secret+strconv.Itoa(int(n)))
	}
	out.Kind, out.Failure = classify.Failed, nil
	r.observer.Fetched(r.context, req, out)
	r.checkLabels()
	if got := r.series()["fetchd_refused_total{reason=other}"]; got != 255 {
		t.Errorf("refused for another reason: %v, want 255", got)
	}
}

// TestSeriesBeginAtZero checks that series exist with the value zero, so that the first
// event counts as an increase.
func TestSeriesBeginAtZero(t *testing.T) {
	t.Parallel()
	r := idle(t)
	all := r.series()
	want := []string{"fetchd_build_info{version=v0}", "fetchd_body_bytes_total", "fetchd_encoded_bytes_total", "fetchd_log_lines_dropped_total",
		"fetchd_fetches_total{error_class=none,outcome=success}", "fetchd_attempts_total{decision=no_failure,error_class=none}",
		"fetchd_attempts_total{decision=retry,error_class=connect_refused}", "fetchd_retry_delay_seconds{source=retry_after} count",
		"fetchd_phase_seconds{phase=tls} count", "fetchd_fetch_seconds{outcome=failed} count", "fetchd_refused_total{reason=memory}",
		"go_goroutines", "go_gc_gomemlimit_bytes"}
	for _, class := range classify.Classes() {
		want = append(want, "fetchd_fetches_total{error_class="+class.String()+",outcome=failed}")
	}
	for _, series := range want {
		if v, there := all[series]; !there {
			t.Errorf("%s is not there", series)
		} else if strings.HasPrefix(series, "fetchd_") && v != 0 && !strings.Contains(series, "build_info") {
			t.Errorf("%s begins at %v, want 0", series, v)
		}
	}
}

// TestGauges checks that each scrape calls the functions again.
func TestGauges(t *testing.T) {
	t.Parallel()
	r := idle(t)
	names := []string{"fetchd_fetches_in_flight", "fetchd_fetches_limit", "fetchd_memory_budget_bytes", "fetchd_draining",
		"fetchd_connections_open", "fetchd_connections_idle", "fetchd_connections_dialled_total", "fetchd_connections_reused_total", "fetchd_connections_stale_total",
		"fetchd_connections_surplus_total"}
	want := func(values ...float64) {
		t.Helper()
		all := r.series()
		for i, name := range names {
			if got, there := all[name]; !there || got != values[i] {
				t.Errorf("%s = %v, there: %v; want %v", name, got, there, values[i])
			}
		}
	}
	want(make([]float64, len(names))...)
	n, draining := 1, false
	r.observer.Gauges(observe.Gauges{
		Fetches: func() (int, int) { return n, 10 * n },
		Memory: func() (map[string]int64, int64) {
			return map[string]int64{"head": int64(2 * n), "body": 0}, int64(20 * n)
		},
		Draining: func() bool { return draining },
		Connections: func() fetch.ConnectionStats {
			return fetch.ConnectionStats{Open: 6 * n, Idle: 5 * n, Dialled: int64(4 * n), Reused: int64(3 * n), Stale: int64(2 * n), Surplus: int64(7 * n)}
		},
	})
	want(1, 10, 20, 0, 6, 5, 4, 3, 2, 7)
	n, draining = 5, true
	want(5, 50, 100, 1, 30, 25, 20, 15, 10, 35)
	if all := r.series(); all["fetchd_memory_bytes{kind=head}"] != 10 || all["fetchd_memory_bytes{kind=body}"] != 0 {
		t.Errorf("by kind: %v, want 10 of heads and 0 of bodies", all)
	}
	r.observer.Gauges(observe.Gauges{})
	want(make([]float64, len(names))...)
}

// TestNames runs promlint after every kind of event.
func TestNames(t *testing.T) {
	t.Parallel()
	r := traced(t)
	s := grpc.NewServer(r.observer.ServerOptions()...)
	pb.RegisterFetchServiceServer(s, pb.UnimplementedFetchServiceServer{})
	r.observer.Serving(s, observe.Gauges{})
	r.hostile()
	r.observer.Refused("", "TOO_MANY_FETCHES")
	problems, err := testutil.GatherAndLint(r.observer.Gatherer())
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	all := r.series()
	for _, series := range []string{
		"grpc_server_started_total{grpc_method=FetchMany,grpc_service=fetchd.v1.FetchService,grpc_type=bidi_stream}",
		"grpc_server_handled_total{grpc_code=Internal,grpc_method=Fetch,grpc_service=fetchd.v1.FetchService,grpc_type=server_stream}",
	} {
		if v, there := all[series]; !there || v != 0 {
			t.Errorf("%s = %v, there: %v; want it at 0", series, v, there)
		}
	}
}

// TestHandler checks the text format, and that a failing collector does not fail the
// scrape.
func TestHandler(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o, err := observe.New(observe.Config{Version: "v1.2.3", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	get := func() *httptest.ResponseRecorder {
		rw := httptest.NewRecorder()
		o.Handler().ServeHTTP(rw, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return rw
	}
	rw := get()
	if body := rw.Body.String(); rw.Code != http.StatusOK || !strings.Contains(body, `fetchd_build_info{version="v1.2.3"} 1`) ||
		!strings.Contains(body, `fetchd_fetch_seconds_bucket{outcome="success",le="900"} 0`) ||
		!strings.Contains(body, `fetchd_fetch_seconds_bucket{outcome="success",le="0.001"} 0`) {
		t.Errorf("GET /metrics = %d:\n%s", rw.Code, body)
	}
	must(t, o.Break())
	if rw := get(); rw.Code != http.StatusOK || !strings.Contains(rw.Body.String(), "fetchd_build_info") {
		t.Errorf("with a broken collector, GET /metrics = %d, want 200 with the rest", rw.Code)
	}
	if !strings.Contains(log.String(), "some metrics are missing") {
		t.Errorf("log %q tells of no broken collector", &log)
	}
}

// gone is a response whose client has disconnected: every write fails.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestHandlerWhoseClientLeaves checks that a disconnect is not logged: any client could
// flood the log.
func TestHandlerWhoseClientLeaves(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o, err := observe.New(observe.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	o.Handler().ServeHTTP(gone{httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if log.Len() > 0 {
		t.Errorf("log %q, want nothing", &log)
	}
}

// TestNothing checks that a nil observer does nothing.
func TestNothing(t *testing.T) {
	t.Parallel()
	var o *observe.Observer
	if ctx := o.Start(t.Context(), time.Now()); ctx != t.Context() {
		t.Errorf("Start = %v, want the same context", ctx)
	}
	o.Refused("", "TOO_MANY_FETCHES")
	o.Serving(grpc.NewServer(o.ServerOptions()...), observe.Gauges{})
	if h := o.Handler(); h != nil {
		t.Errorf("Handler = %v, want nil", h)
	}
	if err := o.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
}

// TestDroppedLogLines checks that each scrape reads the number of dropped lines.
func TestDroppedLogLines(t *testing.T) {
	t.Parallel()
	var dropped uint64
	o, err := observe.New(observe.Config{DroppedLogLines: func() uint64 { return dropped }})
	must(t, err)
	r := &rig{T: t, observer: o}
	for _, dropped = range []uint64{0, 7} {
		if got := r.series()["fetchd_log_lines_dropped_total"]; got != float64(dropped) {
			t.Errorf("fetchd_log_lines_dropped_total = %v, want %d", got, dropped)
		}
	}
}
