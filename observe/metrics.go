package observe

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fetchd/classify"
	"fetchd/fetch"
)

// buckets are those of every time, in seconds. They go from what loopback takes
// to the longest fetch, with every default limit of spec §9 as a bound of its own
// (10, 15, 30 and 60 s, 15 min), so that what ran into one shows as a step; below
// a second each is twice to two and a half times the one before.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 900}

// none is the label of what is not there.
const none = "none"

// reasons are those for which calls are turned away, as their callers are told
// them and as they are counted.
var reasons = map[string]string{
	"TOO_MANY_FETCHES":           "too_many_fetches",
	"TOO_MANY_FETCHES_OF_CALLER": "too_many_fetches_of_caller",
	"TOO_MANY_STREAMS":           "too_many_streams",
	"TOO_MANY_STREAMS_OF_CALLER": "too_many_streams_of_caller",
	"MEMORY":                     "memory",
}

// otherReason counts what is not among them.
const otherReason = "other"

// Metrics counts fetches and calls, in a registry of its own. It is a
// [fetch.Observer], and safe for concurrent use.
//
// What happens with each attempt finds its series by number and not by the text
// of its labels, and allocates nothing.
type Metrics struct {
	registry *prometheus.Registry
	calls    *grpcprom.ServerMetrics
	gauges   atomic.Pointer[Gauges]
	logger   *slog.Logger

	ended    []prometheus.Counter  // by kind; failed ones by class
	failed   []prometheus.Counter  // by class
	seconds  []prometheus.Observer // by kind
	attempts attempts
	delays   []prometheus.Observer // by source
	phases   [phaseCount]prometheus.Observer
	refused  map[string]prometheus.Counter
	other    prometheus.Counter // refused for another reason

	resends, bodyBytes, encodedBytes prometheus.Counter
}

// The phases that have a time.
const (
	resolve = iota
	connect
	handshake
	processing
	transfer
	phaseCount
)

var phaseNames = [phaseCount]string{"resolve", "connect", "tls", "processing", "transfer"}

// phasesOf are the times of an exchange, in that order.
func phasesOf(x *fetch.Exchange) [phaseCount]time.Duration {
	return [phaseCount]time.Duration{x.Resolve, x.Connect, x.TLS, x.Processing, x.Transfer}
}

// NewMetrics returns metrics of a program of the given version.
func NewMetrics(version string) *Metrics {
	return newMetrics(version, slog.New(slog.DiscardHandler), func() uint64 { return 0 })
}

func newMetrics(version string, logger *slog.Logger, dropped func() uint64) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), logger: logger,
		calls: grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(grpcprom.WithHistogramBuckets(buckets)))}
	m.registry.MustRegister(m.calls, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	series := promauto.With(m.registry)
	series.NewGaugeVec(prometheus.GaugeOpts{Name: "fetchd_build_info", Help: "1, with the version of the program."},
		[]string{"version"}).WithLabelValues(version).Set(1)
	m.makeFetches(series)
	m.makeAttempts(series)
	m.makeRefused(series)
	m.makeGauges(series)
	series.NewCounterFunc(prometheus.CounterOpts{Name: "fetchd_log_lines_dropped_total",
		Help: "Lines of the log that were dropped because standard error was not read, or failed."}, func() float64 { return float64(dropped()) })
	return m
}

func (m *Metrics) makeFetches(series promauto.Factory) {
	total := series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_fetches_total",
		Help: "Fetches that ended, by kind of outcome and by what they failed of."}, []string{"outcome", "error_class"})
	seconds := series.NewHistogramVec(prometheus.HistogramOpts{Name: "fetchd_fetch_seconds",
		Help: "Time from the begin of a fetch to its end, waits included.", Buckets: buckets}, []string{"outcome"})
	for _, kind := range names[classify.Kind]() {
		m.ended = append(m.ended, nil)
		m.seconds = append(m.seconds, nil)
		if kind == "" {
			continue
		}
		last := len(m.ended) - 1
		m.seconds[last] = seconds.WithLabelValues(kind)
		if last != int(classify.Failed) {
			m.ended[last] = total.WithLabelValues(kind, none)
		}
	}
	for _, class := range names[classify.Class]() {
		m.failed = append(m.failed, total.WithLabelValues(classify.Failed.String(), orDefault(class, classify.Internal.String())))
	}
	m.bodyBytes = series.NewCounter(prometheus.CounterOpts{Name: "fetchd_body_bytes_total",
		Help: "Bytes of the bodies of each fetch's last attempt, decoded."})
	m.encodedBytes = series.NewCounter(prometheus.CounterOpts{Name: "fetchd_encoded_bytes_total",
		Help: "Bytes of the same bodies as they came, before content decoding."})
}

func (m *Metrics) makeAttempts(series promauto.Factory) {
	m.attempts = newAttempts(series)
	delays := series.NewHistogramVec(prometheus.HistogramOpts{Name: "fetchd_retry_delay_seconds",
		Help: "Time to wait before another attempt, by where it comes from.", Buckets: buckets}, []string{"source"})
	for _, source := range names[classify.DelaySource]() {
		m.delays = append(m.delays, nil)
		if source != "" {
			m.delays[len(m.delays)-1] = delays.WithLabelValues(source)
		}
	}
	phases := series.NewHistogramVec(prometheus.HistogramOpts{Name: "fetchd_phase_seconds",
		Help: "Time that a phase of a request took, where it happened.", Buckets: buckets}, []string{"phase"})
	for i, name := range phaseNames {
		m.phases[i] = phases.WithLabelValues(name)
	}
	m.resends = series.NewCounter(prometheus.CounterOpts{Name: "fetchd_resends_total",
		Help: "Requests that the HTTP transport sent again by itself."})
}

func (m *Metrics) makeRefused(series promauto.Factory) {
	refused := series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_refused_total",
		Help: "Calls that were turned away because of a limit, by which."}, []string{"reason"})
	m.refused = map[string]prometheus.Counter{}
	for told, counted := range reasons {
		m.refused[told] = refused.WithLabelValues(counted)
	}
	m.other = refused.WithLabelValues(otherReason)
}

// Attempted implements [fetch.Observer].
func (m *Metrics) Attempted(_ context.Context, _ *fetch.Request, e *fetch.AttemptFinished) {
	d := &e.Decision
	m.attempts.of(d.Class, d.Verdict).Inc()
	if delay := at(m.delays, d.DelaySource); delay != nil { // there is a source where another attempt follows
		delay.Observe(d.Delay.Seconds())
	}
	for i := range e.Hops {
		x := &e.Hops[i].Exchange
		for phase, took := range phasesOf(x) {
			if took > 0 {
				m.phases[phase].Observe(took.Seconds())
			}
		}
		add(m.resends, int64(x.Resends))
	}
}

// Fetched implements [fetch.Observer].
func (m *Metrics) Fetched(_ context.Context, _ *fetch.Request, out *fetch.Outcome) {
	kind := out.Kind
	if at(m.ended, kind) == nil {
		kind = classify.Failed // also a kind that there is not
		class := classify.Internal
		if out.Failure != nil && int(out.Failure.Class) < len(m.failed) {
			class = out.Failure.Class
		}
		m.failed[class].Inc()
	} else {
		m.ended[kind].Inc()
	}
	m.seconds[kind].Observe(out.Total.Seconds())
	add(m.bodyBytes, out.Body.Size)
	add(m.encodedBytes, out.Body.EncodedSize)
}

// Refused counts a call that is turned away, by the reason that its caller is
// told.
func (m *Metrics) Refused(reason string) {
	if c, known := m.refused[reason]; known {
		c.Inc()
		return
	}
	m.other.Inc()
}

// Handler answers GET /metrics. What cannot be told, such as the state of a
// process whose /proc is hidden, is left out and logged.
func (m *Metrics) Handler() http.Handler {
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{m.logger},
		MaxRequestsInFlight: 8, // more get 503
	})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { scrape.ServeHTTP(deaf{rw}, r) })
}

// deaf is a response whose client may disconnect at any time. A disconnect is not an
// error of the metrics, and anybody could fill the log with it.
type deaf struct{ http.ResponseWriter }

// Write implements io.Writer.
func (d deaf) Write(p []byte) (int, error) {
	_, _ = d.ResponseWriter.Write(p) // see above
	return len(p), nil
}

// Gatherer is for tests and for those who export the metrics elsewhere.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// scrapeLog is a promhttp.Logger.
type scrapeLog struct{ logger *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	l.logger.Warn("metrics are not whole", slog.String("error", fmt.Sprint(v...)))
}

// add adds to a counter, which takes nothing negative and costs a write for zero.
func add(c prometheus.Counter, n int64) {
	if n > 0 {
		c.Add(float64(n))
	}
}

// at is the element of a number that may be too high.
func at[T any, N ~uint8](list []T, n N) T {
	if int(n) < len(list) {
		return list[n]
	}
	var zero T
	return zero
}

// names lists the text of each value of one of classify's types, from zero on,
// which has none.
func names[N interface {
	~uint8
	String() string
}]() []string {
	list := []string{""}
	for n := N(1); n.String() != ""; n++ {
		list = append(list, n.String())
	}
	return list
}
