package observe

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"fetchd/classify"
	"fetchd/fetch"
)

// calls counts the calls of gRPC, with the names and labels that go-grpc-middleware's metrics have. It is an
// [interceptors.ServerReportable].
type calls struct {
	started, handled *prometheus.CounterVec
	methods          sync.Map // of *methodCalls, by methodName
}

// methodName identifies a method.
type methodName struct {
	typ             interceptors.GRPCType
	service, method string
}

// methodCalls has the series of one method. It is the [interceptors.Reporter] of all its calls.
type methodCalls struct {
	interceptors.NoopReporter // messages are not counted

	started prometheus.Counter
	handled []prometheus.Counter // by code
}

func newCalls(series promauto.Factory) *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return series.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &calls{
		started: counter("grpc_server_started_total", "Calls that were started.", labels...),
		handled: counter("grpc_server_handled_total", "Calls that have ended, by code.", append(labels, "grpc_code")...),
	}
}

// of returns the series of a method, and makes them first if they do not exist.
func (c *calls) of(name methodName) *methodCalls {
	if known, ok := c.methods.Load(name); ok {
		m, _ := known.(*methodCalls)
		return m
	}
	labels := []string{string(name.typ), name.service, name.method}
	m := &methodCalls{started: c.started.WithLabelValues(labels...)}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		m.handled = append(m.handled, c.handled.WithLabelValues(append(labels, code.String())...))
	}
	known, _ := c.methods.LoadOrStore(name, m)
	m, _ = known.(*methodCalls)
	return m
}

// initialize makes the series of all methods with the value zero.
func (c *calls) initialize(s reflection.ServiceInfoProvider) {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			typ := interceptors.Unary
			switch {
			case m.IsClientStream && m.IsServerStream:
				typ = interceptors.BidiStream
			case m.IsClientStream:
				typ = interceptors.ClientStream
			case m.IsServerStream:
				typ = interceptors.ServerStream
			}
			c.of(methodName{typ, service, m.Name})
		}
	}
}

// ServerReporter implements interceptors.ServerReportable.
func (c *calls) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	m := c.of(methodName{meta.Typ, meta.Service, meta.Method})
	m.started.Inc()
	return m, ctx
}

// PostCall implements interceptors.Reporter.
func (m *methodCalls) PostCall(err error, _ time.Duration) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	code := st.Code()
	if int(code) >= len(m.handled) { // gRPC has no other
		code = codes.Unknown
	}
	m.handled[code].Inc()
}

const (
	// maxCallers limits the callers with their own series. Each has about 14.
	maxCallers = 256
	// otherCallers is the label value of all other callers: those without a name, whose number is
	// not limited, and those beyond maxCallers.
	otherCallers = "other"
)

// callers counts fetches by caller.
type callers struct {
	fetches, attempts, bytes, refused *prometheus.CounterVec

	other *callerSeries
	mu    sync.Mutex // for changes of known
	known atomic.Pointer[map[string]*callerSeries]
}

// callerSeries are the series of one caller.
type callerSeries struct {
	ended           []prometheus.Counter // by kind
	attempts, bytes prometheus.Counter
	refused         map[string]prometheus.Counter // by ErrorInfo reason
	otherRefused    prometheus.Counter
	blocked         prometheus.Counter // fetches that ended as target_blocked
}

func newCallers(series promauto.Factory) *callers {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return series.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"caller"}, labels...))
	}
	c := &callers{
		fetches:  counter("fetchd_caller_fetches_total", "Finished fetches, by caller and kind of outcome.", "outcome"),
		attempts: counter("fetchd_caller_attempts_total", "Attempts, by caller."),
		bytes:    counter("fetchd_caller_body_bytes_total", "Bytes of the body of each fetch's last attempt, after content decoding, by caller."),
		refused:  counter("fetchd_caller_refused_total", "Calls and tasks that were rejected, connections that were closed, and fetches whose target was blocked, by caller and reason.", "reason"),
	}
	c.other = c.series(otherCallers)
	c.known.Store(new(map[string]*callerSeries))
	return c
}

func (c *callers) series(caller string) *callerSeries {
	s := &callerSeries{attempts: c.attempts.WithLabelValues(caller), bytes: c.bytes.WithLabelValues(caller),
		refused: make(map[string]prometheus.Counter), otherRefused: c.refused.WithLabelValues(caller, otherReason),
		blocked: c.refused.WithLabelValues(caller, classify.TargetBlocked.String())}
	for _, kind := range names[classify.Kind]() {
		s.ended = append(s.ended, nil)
		if kind != "" {
			s.ended[len(s.ended)-1] = c.fetches.WithLabelValues(caller, kind)
		}
	}
	for reason, label := range reasons {
		s.refused[reason] = c.refused.WithLabelValues(caller, label)
	}
	return s
}

// set makes names the callers with their own series. The series of others are removed.
func (c *callers) set(names []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	names = slices.DeleteFunc(names, func(name string) bool { return !utf8.ValidString(name) }) // no label value
	c.mu.Lock()
	defer c.mu.Unlock()
	before, next := *c.known.Load(), make(map[string]*callerSeries)
	for _, name := range names[:min(len(names), maxCallers)] {
		if next[name] = before[name]; next[name] == nil {
			next[name] = c.series(name)
		}
	}
	c.known.Store(&next)
	for name := range before {
		if next[name] == nil && name != otherCallers {
			for _, v := range []*prometheus.CounterVec{c.fetches, c.attempts, c.bytes, c.refused} {
				v.DeletePartialMatch(prometheus.Labels{"caller": name})
			}
		}
	}
}

// of returns the series of a caller.
func (c *callers) of(caller string) *callerSeries {
	if s := (*c.known.Load())[caller]; s != nil {
		return s
	}
	return c.other
}

func (c *callers) fetched(req *fetch.Request, kind classify.Kind, out *fetch.Outcome) {
	s := c.of(req.Caller)
	if out.Failure != nil && out.Failure.Class == classify.TargetBlocked {
		s.blocked.Inc()
	}
	if ended := at(s.ended, kind); ended != nil {
		ended.Inc()
	}
	add(s.bytes, out.Body.Size)
}

func (s *callerSeries) reject(reason string) {
	if known := s.refused[reason]; known != nil {
		known.Inc()
		return
	}
	s.otherRefused.Inc()
}

// SetCallers sets the names of the callers that have their own label value in the metrics by caller.
// All others count as "other", and so do names beyond the first 256 in alphabetical order. The series
// of names that are no longer in the list are removed.
func (o *Observer) SetCallers(names []string) {
	if o != nil {
		o.callers.set(names)
	}
}

var callersInFlight = []series[int]{
	{gauge, "fetchd_caller_fetches_in_flight", "Fetches in flight, by caller.", func(n int) float64 { return float64(n) }, "", ""},
}

// callersInFlight returns the fetches in flight of all callers.
func (o *Observer) callersInFlight() iter.Seq2[string, int] {
	known := *o.callers.known.Load()
	counts := map[string]int{otherCallers: 0}
	for name := range known {
		counts[name] = 0
	}
	for caller, n := range o.gauges.Load().Callers() {
		if known[caller] == nil {
			caller = otherCallers
		}
		counts[caller] += n
	}
	return maps.All(counts)
}
