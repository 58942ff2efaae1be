package observe_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"fetchd/fetch"
	"fetchd/server/observe"
)

// TestNewRefuses checks that New rejects invalid configurations.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		cfg  observe.Config
		want string
	}{
		{"ratio over 1", observe.Config{TraceRatio: 1.1}, "TraceRatio"},
		{"ratio below 0", observe.Config{TraceRatio: -.1}, "TraceRatio"},
		{"no port", observe.Config{TraceEndpoint: "http://collector"}, "TraceEndpoint"},
		{"no host", observe.Config{TraceEndpoint: ":4317"}, "TraceEndpoint"},
		{"another scheme", observe.Config{TraceEndpoint: "ftp://collector:4317"}, "TraceEndpoint"},
		{"userinfo", observe.Config{TraceEndpoint: "http://u:" + secret + "@collector:4317"}, "TraceEndpoint"},
		{"no URL", observe.Config{TraceEndpoint: "http://" + secret + "\x00:1"}, "TraceEndpoint"},
	} {
		o, err := observe.New(row.cfg)
		if err == nil || o != nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), secret) { //nolint:forbidigo // the text is for people, and tested as such
			t.Errorf("%s: New = %v, %v; want an error that names %s and holds no secret", row.name, o, err, row.want)
		}
	}
}

// collecting is a collector that records the names of spans.
type collecting struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]int
}

// Export implements the collector's service.
func (c *collecting) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range in.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans[s.GetName()]++
			}
		}
	}
	return new(collector.ExportTraceServiceResponse), nil
}

// TestCollector checks that a collector receives every span, including the last ones at
// shutdown and those with hostile bytes.
func TestCollector(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &collecting{spans: map[string]int{}}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
	r := traced(t, func(cfg *observe.Config) { cfg.Exporter, cfg.TraceEndpoint = nil, l.Addr().String() })
	r.hostile()
	r.fetch("http", "/r/k/302/1/200")
	if err := r.observer.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(answers) + 1; c.spans["fetch"] != n || c.spans["attempt"] < n || c.spans["GET"] != 2 || c.spans["OPTIONS"] < len(answers) {
		t.Errorf("the collector has %v, want %d fetches with their attempts and hops", c.spans, n)
	}
	r.fetch("http", "/s/late/200") // after the shutdown: not traced, and harmless
}

// hanging is an exporter that never succeeds.
type hanging struct{ tracetest.NoopExporter }

// ExportSpans implements sdktrace.SpanExporter.
func (hanging) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestExporterThatHangs checks that fetches do not wait for an exporter, and that the shutdown waits
// until its context ends.
func TestExporterThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := observe.New(observe.Config{TraceRatio: 1, Exporter: new(hanging)})
		must(t, err)
		req, e, out := told(t)
		begun := time.Now()
		for range 2000 { // more spans than the queue holds
			ctx := o.Start(t.Context(), time.Now())
			o.Attempted(ctx, req, e)
			o.Fetched(ctx, req, out)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("2,000 fetches waited %s for the exporter", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun = time.Now()
		if err := o.Shutdown(ctx); err == nil || time.Since(begun) != 100*time.Millisecond {
			t.Errorf("Shutdown = %v after %s, want the error of its context after 100 ms", err, time.Since(begun))
		}
	})
}

// refusing is an exporter that fails while the test wants it to.
type refusing struct {
	tracetest.NoopExporter
	fail bool
}

// TestExportFailuresAreLogged checks for a log line when failures start and when they end.
func TestExportFailuresAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &refusing{fail: true}
	r := traced(t, func(cfg *observe.Config) {
		cfg.Exporter, cfg.Logger = e, slog.New(slog.NewTextHandler(&log, nil))
	})
	flush := func() {
		r.fetch("http", "/s/k/200", func(*fetch.Request) {})
		if err := r.observer.Flush(t.Context()); err != nil {
			t.Errorf("an export that fails is told of as %v", err)
		}
	}
	flush()
	flush()
	e.fail = false
	flush()
	flush()
	lost, again := strings.Count(log.String(), "traces are lost"), strings.Count(log.String(), "accepts traces again")
	if lost != 1 || again != 1 {
		t.Errorf("%d lines of lost traces and %d of an end, want one of each:\n%s", lost, again, &log)
	}
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *refusing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	if e.fail {
		return io.ErrUnexpectedEOF
	}
	return nil
}
