package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog has this type
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/door"
	"fetchd/internal/jsontext"
	"fetchd/internal/webapi"
)

const (
	// maxJSONElements limits the fields and list entries of a request, which use memory in addition to
	// its text.
	maxJSONElements = 20 * maxBatch
	// maxWebStreams is the number of requests in flight on one HTTP/2 connection.
	maxWebStreams = 64
	maxWebHead    = 8 << 10
)

// newWeb returns the server of the HTTP API.
func (s *Server) newWeb() *http.Server {
	routes, guard := webapi.NewRoutes(), &webapi.Guard{Hosts: s.config.Hosts, Flag: "--console-host"}
	for _, m := range methods {
		verbs := "POST"
		if m.stream || m.name == "Why" || m.name == "Stats" {
			verbs = "GET POST" // a long URL does not fit into a query
		}
		routes.Add(verbs, m.path, s.serveMethod(m, guard))
	}
	routes.AddDescriptor("frontier.binpb", descriptor)
	routes.AddHealth(s.service.stopping)
	if s.config.Metrics != nil {
		routes.Add("GET", "/metrics", webapi.Cached(promhttp.HandlerFor(s.config.Metrics, promhttp.HandlerOpts{DisableCompression: true})))
	}
	if s.config.Page != nil {
		routes.Add("GET", "/{$}", guard.Page(s.config.Page))
		routes.Add("GET", "/console/", guard.Page(s.config.Page))
	}
	routes.Rest()
	return &http.Server{
		Handler: door.Limit(routes, s.identifies), ConnContext: door.ConnContext, TLSConfig: door.TLS(s.config.TLS), HTTP2: &http.HTTP2Config{MaxReadFrameSize: 16 << 10, MaxConcurrentStreams: maxWebStreams,
			MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
		ReadHeaderTimeout: arrivalTime, ReadTimeout: arrivalTime, WriteTimeout: maxWait + storeTime + s.config.Stall, IdleTimeout: idleTime, MaxHeaderBytes: maxWebHead,
		ConnState: s.config.Handshakes.ConnState,
		ErrorLog:  log.New(io.Discard, "", 0), // its lines would quote requests of unauthenticated clients
	}
}

// identifies reports whether a request has valid credentials.
func (s *Server) identifies(r *http.Request) bool {
	_, err := s.identify(r.Context(), r.Header.Values("Authorization"), r.TLS)
	return err == nil
}

// serveMethod returns the handler of a method.
func (s *Server) serveMethod(m method, guard *webapi.Guard) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		webapi.Protect(rw.Header())
		out := &webAnswer{server: s, rw: rw, control: http.NewResponseController(rw), stream: m.stream}
		c := &endedCall{method: slog.String("http.path", m.path), name: m.name, began: time.Now()}
		r = r.WithContext(context.WithValue(r.Context(), endedCallKey{}, c))
		err := s.guarded(m, guard, r, out)
		st := status.Convert(err)
		if err != nil {
			out.fail(st)
		}
		s.ended(r.Context(), c, r.RemoteAddr, st)
	}
}

// guarded carries out a call. A panic ends only this call.
func (s *Server) guarded(m method, guard *webapi.Guard, r *http.Request, out *webAnswer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(r.Context(), p)
		}
	}()
	if err := guard.Check(r); err != nil {
		return err
	}
	name, err := s.identify(r.Context(), r.Header.Values("Authorization"), r.TLS)
	if err != nil {
		return err
	}
	setCaller(r.Context(), name)
	c, leave, err := s.gate.enter(name, s.gate.calls)
	if err != nil {
		return err
	}
	defer leave()
	ctx := withCaller(r.Context(), c)
	in := m.request()
	free, err := s.receiveWeb(ctx, r, out, in)
	if err != nil {
		return err
	}
	defer free()
	_ = out.control.SetReadDeadline(time.Time{}) // from here on net/http reads only to notice that the caller is gone
	return s.service.run(ctx, m, in, out.send)
}

// receiveWeb reads a request. free must be called when it is not needed any more.
func (s *Server) receiveWeb(ctx context.Context, r *http.Request, out *webAnswer, in proto.Message) (free func(), err error) {
	if r.Method != http.MethodPost {
		return func() {}, readQuery(r.URL.RawQuery, in)
	}
	if err := webapi.CheckJSON(r); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, arrivalTime)
	defer cancel()
	free, err = callerOf(ctx).receive(waiting)
	if err != nil {
		return nil, err
	}
	text, err := out.read(r)
	if err == nil {
		err = decodeJSON(text, in)
	}
	if err != nil || len(text) <= shortMessage {
		free()
	}
	return free, err
}

func decodeJSON(text []byte, in proto.Message) error {
	if n := badrequest.JSONElements(text); n > maxJSONElements {
		return status.Errorf(codes.InvalidArgument, "the request has %d fields and list entries: send at most %d", n, maxJSONElements)
	}
	return badrequest.ReadJSON(text, in, "the request")
}

// readQuery reads the parameters of a GET, which are named like the fields of the request. JSON allows
// numbers as text.
func readQuery(query string, in proto.Message) error {
	given, err := url.ParseQuery(query)
	if err != nil {
		return status.Error(codes.InvalidArgument, "the query is not valid: percent-encode its values")
	}
	values := make(map[string]string, len(given))
	for name, all := range given {
		if len(all) > 1 {
			return status.Errorf(codes.InvalidArgument, "the query has %.60q twice: give it once", name)
		}
		values[name] = all[0]
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return badrequest.ReadJSON(text, in, "the query")
}

// webAnswer writes the answer to a call: one JSON object, or one for each outcome of a stream.
type webAnswer struct {
	server  *Server
	rw      http.ResponseWriter
	control *http.ResponseController
	stream  bool
	started bool
}

// read reads the body of a request.
func (a *webAnswer) read(r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(a.rw, r.Body, maxMessageBytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		var v badrequest.Violations
		v.AddTooLarge("request", maxMessageBytes+1, maxMessageBytes)
		return nil, v.Err()
	}
	if err != nil {
		return nil, status.Error(codes.DeadlineExceeded, "the request did not arrive in time")
	}
	return text, nil
}

// send sends a message.
func (a *webAnswer) send(m proto.Message) error {
	lines := []proto.Message{m}
	if page, ok := m.(*pb.WatchResponse); ok {
		lines = lines[:0]
		for _, o := range page.GetOutcomes() {
			lines = append(lines, o)
		}
	}
	var text []byte
	for _, line := range lines {
		one, err := jsontext.MarshalMessage(line)
		if err != nil {
			return err
		}
		text = append(append(text, one...), '\n')
	}
	a.start()
	_ = a.control.SetWriteDeadline(time.Now().Add(a.server.config.Stall)) // an error here is harmless: other limits apply
	if _, err := a.rw.Write(text); err != nil {
		return a.server.stalledError()
	}
	if !a.stream {
		return nil
	}
	if err := a.control.Flush(); err != nil {
		return a.server.stalledError()
	}
	_ = a.control.SetWriteDeadline(time.Time{}) // until the next line
	return nil
}

func (a *webAnswer) start() {
	if a.started {
		return
	}
	a.started = true
	kind, name := "application/json", "frontier.json"
	if a.stream {
		kind, name = "application/x-ndjson", "frontier.ndjson"
	}
	a.rw.Header().Set("Content-Type", kind)
	webapi.Attach(a.rw.Header(), name)
}

// fail sends a status: as the answer, or as its last line if the answer has started.
func (a *webAnswer) fail(st *status.Status) {
	if !a.started {
		webapi.WriteStatus(a.rw, st)
		return
	}
	webapi.WriteLastLine(a.rw, st)
}
