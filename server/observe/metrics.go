package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fetchd/classify"
	"fetchd/fetch"
)

// buckets are the buckets of all histograms, in seconds. They range from a request
// over loopback to the longest fetch. Every default limit of spec §9 is a bound (10,
// 15, 30 and 60 s, 15 min), so that fetches that reach a limit show as a step.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 900}

// none is the label value for an absent value.
const none = "none"

// reasons maps the ErrorInfo reason of a rejected call, or the cause for which a connection was closed, to its label value.
var reasons = map[string]string{
	"TOO_MANY_FETCHES":           "too_many_fetches",
	"QUOTA":                      "quota",
	"POLICY":                     "policy",
	"TOO_MANY_FETCHES_OF_CALLER": "too_many_fetches_of_caller",
	"TOO_MANY_STREAMS":           "too_many_streams",
	"TOO_MANY_STREAMS_OF_CALLER": "too_many_streams_of_caller",
	"MEMORY":                     "memory",
	"CANCELLED_CALLS":            "cancelled_calls",
	"STRANGERS_CALLS":            "strangers_calls",
	"CONNS_OF_CALLER":            "conns_of_caller",
	"TOO_MANY_CONNS":             "too_many_conns",
	"UNAUTHENTICATED":            "unauthenticated",
}

// otherReason is the label value of any other reason.
const otherReason = "other"

// The phases whose time is measured.
const (
	resolve = iota
	connect
	handshake
	processing
	transfer
	phaseCount
)

var phaseNames = [phaseCount]string{"resolve", "connect", "tls", "processing", "transfer"}

// phasesOf returns the times of an exchange, in that order.
func phasesOf(x *fetch.Exchange) [phaseCount]time.Duration {
	return [phaseCount]time.Duration{x.Resolve, x.Connect, x.TLS, x.Processing, x.Transfer}
}

// makeMetrics registers all metrics in a registry of their own.
func (o *Observer) makeMetrics(cfg *Config) {
	o.registry = prometheus.NewRegistry()
	o.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	series := promauto.With(o.registry)
	o.calls = newCalls(series)
	series.NewGaugeVec(prometheus.GaugeOpts{Name: "fetchd_build_info", Help: "1, with the version of the program."},
		[]string{"version"}).WithLabelValues(cfg.Version).Set(1)
	o.makeFetches(series)
	o.makeAttempts(series)
	o.makeRefused(series)
	o.callers = newCallers(series)
	o.makeGauges()
	series.NewCounterFunc(prometheus.CounterOpts{Name: "fetchd_log_lines_dropped_total",
		Help: "Log lines that were dropped because standard error was blocked or failed."}, func() float64 { return float64(cfg.DroppedLogLines()) })
	o.registry.MustRegister(cfg.Collectors...)
}

func (o *Observer) makeFetches(series promauto.Factory) {
	total := series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_fetches_total",
		Help: "Finished fetches, by kind of outcome and by error class."}, []string{"outcome", "error_class"})
	seconds := series.NewHistogramVec(prometheus.HistogramOpts{Name: "fetchd_fetch_seconds",
		Help: "Time from the start of a fetch to its end, including waits.", Buckets: buckets}, []string{"outcome"})
	for _, kind := range names[classify.Kind]() {
		o.ended = append(o.ended, nil)
		o.seconds = append(o.seconds, nil)
		if kind == "" {
			continue
		}
		last := len(o.ended) - 1
		o.seconds[last] = seconds.WithLabelValues(kind)
		if last != int(classify.Failed) {
			o.ended[last] = total.WithLabelValues(kind, none)
		}
	}
	for _, class := range names[classify.Class]() {
		o.failed = append(o.failed, total.WithLabelValues(classify.Failed.String(), cmp.Or(class, classify.Internal.String())))
	}
	o.bodyBytes = series.NewCounter(prometheus.CounterOpts{Name: "fetchd_body_bytes_total",
		Help: "Bytes of the body of each fetch's last attempt, after content decoding."})
	o.encodedBytes = series.NewCounter(prometheus.CounterOpts{Name: "fetchd_encoded_bytes_total",
		Help: "Bytes of the same bodies as received, before content decoding."})
}

func (o *Observer) makeAttempts(series promauto.Factory) {
	o.attempts = newAttempts(series)
	delays := series.NewHistogramVec(prometheus.HistogramOpts{Name: "fetchd_retry_delay_seconds",
		Help: "Delay before another attempt, by its source.", Buckets: buckets}, []string{"source"})
	for _, source := range names[classify.DelaySource]() {
		o.delays = append(o.delays, nil)
		if source != "" {
			o.delays[len(o.delays)-1] = delays.WithLabelValues(source)
		}
	}
	phases := series.NewHistogramVec(prometheus.HistogramOpts{Name: "fetchd_phase_seconds",
		Help: "Duration of each phase of a request. Phases that did not occur are not counted.", Buckets: buckets}, []string{"phase"})
	for i, name := range phaseNames {
		o.phases[i] = phases.WithLabelValues(name)
	}
}

func (o *Observer) makeRefused(series promauto.Factory) {
	refused := series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_refused_total",
		Help: "Calls that were rejected, and connections that were closed, because of a limit, by limit."}, []string{"reason"})
	o.refused = map[string]prometheus.Counter{}
	for reason, label := range reasons {
		o.refused[reason] = refused.WithLabelValues(label)
	}
	o.other = refused.WithLabelValues(otherReason)
	o.denied = series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_policy_denials_total",
		Help: "What the policies of callers forbid, by policy and kind of rule. In mode report nothing was blocked."}, []string{"policy", "reason", "mode"})
}

// Denied counts a decision of a policy of callers. The names of policies and reasons are few: those of a file
// and of this program. reported says that nothing was blocked.
func (o *Observer) Denied(policy, reason string, reported bool) {
	if o == nil {
		return
	}
	mode := "enforce"
	if reported {
		mode = "report"
	}
	o.denied.WithLabelValues(policy, reason, mode).Inc()
}

// Attempted implements [fetch.Observer].
func (o *Observer) Attempted(ctx context.Context, req *fetch.Request, e *fetch.AttemptFinished) {
	d := &e.Decision
	o.callers.of(req.Caller).attempts.Inc()
	o.attempts.counter(d.Class, d.Verdict).Inc()
	if delay := at(o.delays, d.DelaySource); delay != nil { // there is a source only if another attempt follows
		delay.Observe(d.Delay.Seconds())
	}
	for i := range e.Hops {
		for phase, took := range phasesOf(&e.Hops[i].Exchange) {
			if took > 0 {
				o.phases[phase].Observe(took.Seconds())
			}
		}
	}
	if o.traces != nil {
		o.traces.attempted(ctx, e)
	}
}

// Fetched implements [fetch.Observer].
func (o *Observer) Fetched(ctx context.Context, req *fetch.Request, out *fetch.Outcome) {
	kind := out.Kind
	if at(o.ended, kind) == nil {
		kind = classify.Failed // also for an unknown kind
		class := classify.Internal
		if out.Failure != nil && int(out.Failure.Class) < len(o.failed) {
			class = out.Failure.Class
		}
		o.failed[class].Inc()
	} else {
		o.ended[kind].Inc()
	}
	o.seconds[kind].Observe(out.Total.Seconds())
	add(o.bodyBytes, out.Body.Size)
	add(o.encodedBytes, out.Body.EncodedSize)
	o.callers.fetched(req, kind, out)
	if o.traces != nil {
		o.traces.fetched(ctx, req, out)
	}
}

// Refused counts a rejected call. reason is the ErrorInfo reason that the caller
// receives, such as TOO_MANY_FETCHES.
func (o *Observer) Refused(caller, reason string) {
	if o == nil {
		return
	}
	o.callers.of(caller).reject(reason)
	if c, known := o.refused[reason]; known {
		c.Inc()
		return
	}
	o.other.Inc()
}

// Handler returns the handler of GET /metrics. Metrics that cannot be collected, such
// as those of the process without access to /proc, are omitted, and the error is logged. It makes the
// page for each request; its user must limit how often. It is nil if o is nil.
func (o *Observer) Handler() http.Handler {
	if o == nil {
		return nil
	}
	scrape := promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{o.logger},
		DisableCompression: true, // its user compresses the page
	})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { scrape.ServeHTTP(ignoreWriteErrors{rw}, r) })
}

// ignoreWriteErrors hides the errors of a client that disconnected. They are not
// errors of the metrics, and any client could flood the log with them.
type ignoreWriteErrors struct{ http.ResponseWriter }

// Write implements io.Writer. It never fails.
func (w ignoreWriteErrors) Write(p []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(p)
	return len(p), nil
}

// Gatherer returns the registry, for tests and for exporting the metrics elsewhere.
func (o *Observer) Gatherer() prometheus.Gatherer { return o.registry }

// scrapeLog is a promhttp.Logger.
type scrapeLog struct{ logger *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	l.logger.Warn("some metrics are missing", slog.String("error", fmt.Sprint(v...)))
}

// add adds a positive n to a counter. Counters panic on negative values, and adding
// zero would cost a write.
func add(c prometheus.Counter, n int64) {
	if n > 0 {
		c.Add(float64(n))
	}
}

// at returns list[n], or the zero value if n is out of range.
func at[T any, N ~uint8](list []T, n N) T {
	if int(n) < len(list) {
		return list[n]
	}
	var zero T
	return zero
}

// names lists the text of each value of one of classify's types, starting with the
// empty text of zero.
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
