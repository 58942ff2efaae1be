package observe_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/server/observe"
)

// BenchmarkObserver measures the most frequent fetch: one attempt on a reused
// connection.
func BenchmarkObserver(b *testing.B) {
	b.Run("metrics", func(b *testing.B) { benchObserver(b, observe.Config{}) })
	b.Run("not-sampled", func(b *testing.B) { benchObserver(b, observe.Config{Exporter: tracetest.NewNoopExporter()}) })
	b.Run("sampled", func(b *testing.B) {
		benchObserver(b, observe.Config{Exporter: tracetest.NewNoopExporter(), TraceRatio: 1})
	})
}

func benchObserver(b *testing.B, cfg observe.Config) {
	b.Helper()
	o, err := observe.New(cfg)
	must(b, err)
	b.Cleanup(func() { _ = o.Shutdown(b.Context()) }) // over by now
	req, e, out := told(b)
	b.ReportAllocs()
	for b.Loop() {
		ctx := o.Start(b.Context(), time.Now())
		o.Attempted(ctx, req, e)
		o.Fetched(ctx, req, out)
	}
}

// told returns what an observer receives for a fetch that succeeds at once.
func told(tb testing.TB) (*fetch.Request, *fetch.AttemptFinished, *fetch.Outcome) {
	tb.Helper()
	req := fetch.NewRequest(classify.Standard)
	var err error
	if req.URL, err = urls.Parse("https://example.com/some/path?with=query"); err != nil {
		tb.Fatal(err)
	}
	hops := []fetch.Hop{{Method: "GET", URL: req.URL.String(), StatusCode: 200, Exchange: fetch.Exchange{
		RemoteAddress: "192.0.2.1:443", Protocol: "HTTP/2.0", TLSVersion: "TLS 1.3", Reused: true, Sent: true,
		Processing: 30 * time.Millisecond, Transfer: 4 * time.Millisecond}}}
	return req, &fetch.AttemptFinished{Attempt: 1, Hops: hops, Decision: classify.Decision{
			Kind: classify.Success, Verdict: classify.NoFailure, Rule: "H0"}},
		&fetch.Outcome{Kind: classify.Success, Rule: "H0", Attempts: 1, Exchanges: 1, Hops: hops,
			Total: 35 * time.Millisecond, Body: fetch.BodySummary{Size: 4096, EncodedSize: 1024}}
}

// BenchmarkFetch reads 1 KiB over loopback, as fetch.BenchmarkFetch does, without an
// observer, with metrics and with traces.
func BenchmarkFetch(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<10))
	}))
	b.Cleanup(s.Close)
	sink := tracetest.NewNoopExporter()
	b.Run("nobody", func(b *testing.B) { benchFetch(b, s.URL, nil) })
	b.Run("metrics", func(b *testing.B) { benchFetch(b, s.URL, &observe.Config{}) })
	b.Run("not-sampled", func(b *testing.B) { benchFetch(b, s.URL, &observe.Config{Exporter: sink}) })
	b.Run("sampled", func(b *testing.B) { benchFetch(b, s.URL, &observe.Config{Exporter: sink, TraceRatio: 1}) })
}

func benchFetch(b *testing.B, url string, observed *observe.Config) {
	b.Helper()
	cfg := fetch.Config{Egress: fetch.Egress{Unrestricted: true}}
	var o *observe.Observer
	if observed != nil {
		var err error
		if o, err = observe.New(*observed); err != nil {
			b.Fatal(err)
		}
		cfg.Observer = o
		b.Cleanup(func() { _ = o.Shutdown(b.Context()) }) // over by now
	}
	c, err := fetch.New(cfg)
	must(b, err)
	b.Cleanup(c.Close)
	req := fetch.NewRequest(classify.Standard)
	if req.URL, err = urls.Parse(url); err != nil {
		b.Fatal(err)
	}
	req.Delivery = fetch.Inline
	b.ReportAllocs()
	for b.Loop() {
		ctx := o.Start(b.Context(), time.Now())
		if out := c.Fetch(ctx, req, nil); out.Kind != classify.Success {
			b.Fatalf("%s: %+v", out.Kind, out.Failure)
		}
	}
}

// BenchmarkObserverParallel updates the same metrics from all processors.
func BenchmarkObserverParallel(b *testing.B) {
	o, err := observe.New(observe.Config{})
	must(b, err)
	req, e, out := told(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Attempted(b.Context(), req, e)
			o.Fetched(b.Context(), req, out)
		}
	})
}
