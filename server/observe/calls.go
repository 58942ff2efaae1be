package observe

import (
	"context"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// calls counts the calls of gRPC and their messages, with the names and labels that
// go-grpc-middleware's metrics have. It is an [interceptors.ServerReportable].
//
// The series of a method are looked up once for each call and not for each message.
type calls struct {
	started, received, sent, handled *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
	methods                          sync.Map // of *methodCalls, by methodName
}

// methodName identifies a method.
type methodName struct {
	typ             interceptors.GRPCType
	service, method string
}

// methodCalls has the series of one method. It is the [interceptors.Reporter] of all its calls.
type methodCalls struct {
	started, received, sent prometheus.Counter
	handled                 []prometheus.Counter // by code
	seconds                 prometheus.Observer
}

func newCalls(series promauto.Factory) *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return series.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &calls{
		started:  counter("grpc_server_started_total", "Calls that were started.", labels...),
		handled:  counter("grpc_server_handled_total", "Calls that have ended, by code.", append(labels, "grpc_code")...),
		received: counter("grpc_server_msg_received_total", "Messages that were received from callers.", labels...),
		sent:     counter("grpc_server_msg_sent_total", "Messages that were sent to callers.", labels...),
		seconds: series.NewHistogramVec(prometheus.HistogramOpts{Name: "grpc_server_handling_seconds",
			Help: "Time from the start of a call to its end.", Buckets: buckets}, labels),
	}
}

// of returns the series of a method, and makes them first if they do not exist.
func (c *calls) of(name methodName) *methodCalls {
	if known, ok := c.methods.Load(name); ok {
		m, _ := known.(*methodCalls)
		return m
	}
	labels := []string{string(name.typ), name.service, name.method}
	m := &methodCalls{
		started:  c.started.WithLabelValues(labels...),
		received: c.received.WithLabelValues(labels...),
		sent:     c.sent.WithLabelValues(labels...),
		seconds:  c.seconds.WithLabelValues(labels...),
	}
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
func (m *methodCalls) PostCall(err error, took time.Duration) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	code := st.Code()
	if int(code) >= len(m.handled) { // gRPC has no other
		code = codes.Unknown
	}
	m.handled[code].Inc()
	m.seconds.Observe(took.Seconds())
}

// PostMsgSend implements interceptors.Reporter.
func (m *methodCalls) PostMsgSend(_ any, err error, _ time.Duration) {
	if err == nil {
		m.sent.Inc()
	}
}

// PostMsgReceive implements interceptors.Reporter.
func (m *methodCalls) PostMsgReceive(_ any, err error, _ time.Duration) {
	if err == nil {
		m.received.Inc()
	}
}
