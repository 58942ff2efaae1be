package observe_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/server/observe"
)

// rig is an origin and a client with an observer.
type rig struct {
	*testing.T
	origin   *origin.Origin
	raw      net.Listener // of the origin of [rig.hostile]
	client   *fetch.Client
	observer *observe.Observer
	spans    *tracetest.InMemoryExporter
	context  context.Context // of the fetches
}

// in returns r for a subtest.
func (r *rig) in(t *testing.T) *rig {
	c := *r
	c.T = t
	return &c
}

// idle returns a rig with metrics, and without an origin and a client.
func idle(t *testing.T) *rig {
	t.Helper()
	o, err := observe.New(observe.Config{Version: "v0"})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{T: t, observer: o}
}

// counted returns a rig with metrics only.
func counted(t *testing.T) *rig {
	t.Helper()
	r := idle(t)
	r.context = t.Context()
	r.start(r.observer)
	return r
}

// traced returns a rig with metrics and traces. change may modify the configuration.
func traced(t *testing.T, change ...func(*observe.Config)) *rig {
	t.Helper()
	cfg := observe.Config{TraceRatio: 1}
	r := &rig{T: t, spans: tracetest.NewInMemoryExporter(), context: t.Context()}
	cfg.Exporter = r.spans
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if r.observer, err = observe.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.observer.Shutdown(context.Background()) }) // tests that need the error call Shutdown themselves
	r.start(r.observer)
	return r
}

func (r *rig) start(observer fetch.Observer) {
	r.Helper()
	var err error
	if r.origin, err = origin.Start(origin.Config{Seed: 1}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.origin.Close() })
	cfg := fetch.Config{RootCAs: r.origin.CA(), Observer: observer,
		Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	if r.raw, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.raw.Close() })
	cfg.Egress.AllowPorts = append(cfg.Egress.AllowPorts, netip.MustParseAddrPort(r.raw.Addr().String()).Port())
	for _, name := range []string{"http", "https", "https-localhost", "refused"} {
		if at, err := netip.ParseAddrPort(r.origin.Addr(name)); err == nil {
			cfg.Egress.AllowPorts = append(cfg.Egress.AllowPorts, at.Port())
		}
	}
	if r.client, err = fetch.New(cfg); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(r.client.Close)
}

// fetch requests path from a listener of the origin, and retries without a delay.
func (r *rig) fetch(listener, path string, change ...func(*fetch.Request)) *fetch.Outcome {
	r.Helper()
	req := fetch.NewRequest(classify.Standard)
	u, bad := urls.Parse(r.origin.URL(listener, path))
	if bad != nil {
		r.Fatalf("URL of %s: %v", path, bad)
	}
	req.ID, req.URL, req.Policy.BaseDelay = "id-of-"+r.Name(), u, 0
	for _, f := range change {
		f(req)
	}
	return r.client.Fetch(r.observer.Start(r.context, time.Now()), req, nil)
}

// series returns the values of all series by name and labels. A histogram has its
// count and its sum.
func (r *rig) series() map[string]float64 {
	r.Helper()
	families, err := r.observer.Gatherer().Gather()
	must(r, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName() + labelsOf(m)
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				all[key+" count"] = float64(m.GetHistogram().GetSampleCount())
				all[key+" sum"] = m.GetHistogram().GetSampleSum()
			case dto.MetricType_COUNTER:
				all[key] = m.GetCounter().GetValue()
			default:
				all[key] = m.GetGauge().GetValue()
			}
		}
	}
	return all
}

// labelsOf formats labels as {a="b",c="d"}.
func labelsOf(m *dto.Metric) string {
	text := ""
	for _, l := range m.GetLabel() {
		text += "," + l.GetName() + "=" + l.GetValue()
	}
	if text == "" {
		return ""
	}
	return "{" + text[1:] + "}"
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// told returns what an observer receives for a fetch that succeeds at once.
func told(t testing.TB) (*fetch.Request, *fetch.AttemptFinished, *fetch.Outcome) {
	t.Helper()
	req := fetch.NewRequest(classify.Standard)
	var err error
	if req.URL, err = urls.Parse("https://example.com/some/path?with=query"); err != nil {
		t.Fatal(err)
	}
	hops := []fetch.Hop{{Method: "GET", URL: req.URL.String(), StatusCode: 200, Exchange: fetch.Exchange{
		RemoteAddress: "192.0.2.1:443", Protocol: "HTTP/2.0", TLSVersion: "TLS 1.3", Reused: true, Sent: true,
		Processing: 30 * time.Millisecond, Transfer: 4 * time.Millisecond}}}
	return req, &fetch.AttemptFinished{Attempt: 1, Hops: hops, Decision: classify.Decision{
			Kind: classify.Success, Verdict: classify.NoFailure, Rule: "H0"}},
		&fetch.Outcome{Kind: classify.Success, Rule: "H0", Attempts: 1, Exchanges: 1, Hops: hops,
			Total: 35 * time.Millisecond, Body: fetch.BodySummary{Size: 4096, EncodedSize: 1024}}
}
