package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestCancel cancels calls in each phase. The call returns CANCELLED, the exchange with the origin
// is cancelled, and the fetch ends.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		until        string // the event after which the caller leaves
		end          origin.End
	}{
		{"before the head", "silent", "attempt_started", origin.EndClientGone},
		{"in the body", "200:size=100,stall=50", "response_started", origin.EndClientGone},
		{"in a wait", "503:size=10", "attempt_finished", origin.EndAnswered},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			in := r.request("/s/k/" + row.script)
			in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(300), MaxDelay: seconds(300)}
			in.TimeoutPolicy = patient()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := r.mustStream(ctx, in)
			for name := ""; name != row.until; {
				m, err := stream.Recv()
				if err != nil {
					t.Fatalf("Recv = %v before %s", err, row.until)
				}
				name = eventName(last(m))
			}
			seen := r.awaitRequest("k")
			cancel()
			_, err := stream.Recv()
			wantCode(t, "Recv", err, codes.Canceled)
			r.wantLeft(seen, row.end)
		})
	}
	t.Run("unary", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := r.Client.FetchUnary(ctx, r.request("/s/k/silent"))
			ended <- err
		}()
		seen := r.awaitRequest("k")
		cancel()
		wantCode(t, "FetchUnary", <-ended, codes.Canceled)
		r.wantLeft(seen, origin.EndClientGone)
	})
}

// wantLeft waits until the origin's exchange and the fetch have ended.
func (r *rig) wantLeft(seen origin.Request, want origin.End) {
	r.Helper()
	<-seen.Done
	got := r.Origin.Requests("k")
	if len(got) != 1 || got[0].End != want {
		r.Errorf("the origin saw %d requests, the first ended %q; want 1 and %q", len(got), got[0].End, want)
	}
	line := r.logs.await(r.T, "fetch finished", 1)[0]
	if line["error_class"] != "cancelled" || line["stop_reason"] != "stopped" || line["retryable"] != false {
		r.Errorf("log %v, want cancelled, stopped, not retryable", line)
	}
}

// call is a Fetch in flight.
type call struct {
	ended chan *answer
	at    time.Time // when it ended
}

// begin starts a Fetch, and waits until every goroutine of the bubble is blocked.
func (r *rig) begin(in *pb.FetchRequest) *call { return r.beginBy((*rig).fetch, in) }

// beginBy is begin over the API of fetch.
func (r *rig) beginBy(fetch func(*rig, context.Context, *pb.FetchRequest) *answer, in *pb.FetchRequest) *call {
	c := &call{ended: make(chan *answer, 1)}
	go func() {
		a := fetch(r, r.Context(), in)
		c.at = time.Now()
		c.ended <- a
	}()
	synctest.Wait()
	return c
}

// TestShutdown stops a server with a fetch in flight, over gRPC and over HTTP. A POST has no wait
// that a shutdown could end, because it is sent once.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method, script string
		class                pb.ErrorClass // none: success
		ends                 time.Duration // after the shutdown
		status               int32
	}{
		{"in a wait", "GET", "503", pb.ErrorClass_ERROR_CLASS_SHUTDOWN, 0, 503},
		{"in an attempt that ends well", "GET", "200:size=100,delay=5s", 0, 5 * time.Second, 200},
		{"in an attempt that would be retried", "GET", "503:delay=5s", pb.ErrorClass_ERROR_CLASS_SHUTDOWN, 5 * time.Second, 503},
		{"in an attempt that would not be", "GET", "404:delay=5s", pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR, 5 * time.Second, 404},
		{"in a POST", "POST", "503:delay=5s", pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, 5 * time.Second, 503},
	} {
		for api, fetch := range map[string]func(*rig, context.Context, *pb.FetchRequest) *answer{"gRPC": (*rig).fetch, "HTTP": (*rig).fetchWeb} {
			t.Run(row.name+", "+api, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					in := r.request("/s/k/" + row.script)
					in.Method = row.method
					in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(60), MaxDelay: seconds(60)}
					in.TimeoutPolicy = patient()
					c := r.beginBy(fetch, in)
					began := time.Now()
					r.shutDown()
					a := <-c.ended
					if a.err != nil {
						r.Fatalf("Fetch = %v, want an outcome", a.err)
					}
					if took, down := c.at.Sub(began), time.Since(began); took != row.ends || down != row.ends && api == "gRPC" {
						r.Errorf("the fetch ended after %s and the server after %s, want %s", took, down, row.ends)
					}
					if got := a.outcome.GetResponse().GetStatusCode(); got != row.status {
						r.Errorf("last status %d, want %d", got, row.status)
					}
					r.wantShutdown(a.outcome, row.class)
					r.wantRequests("k", 1)
				})
			})
		}
	}
}

func (r *rig) wantShutdown(o *pb.FetchOutcome, class pb.ErrorClass) {
	r.Helper()
	switch e := o.GetError(); class {
	case 0:
		if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			r.Errorf("outcome %v, want SUCCESS", o)
		}
	case pb.ErrorClass_ERROR_CLASS_SHUTDOWN:
		wantClass(r.T, o, class, pb.StopReason_STOP_REASON_STOPPED, 1)
		if !e.GetRetryable() || e.GetClassRule() != "P5" || e.GetFailureType() != pb.FailureType_FAILURE_TYPE_TRANSIENT {
			r.Errorf("error %v, want it retryable, transient, by P5", e)
		}
	case pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR:
		wantClass(r.T, o, class, pb.StopReason_STOP_REASON_NOT_IDEMPOTENT, 1)
		if e.GetRetryable() {
			r.Error("retryable, though repeating could repeat an effect")
		}
	default:
		wantClass(r.T, o, class, pb.StopReason_STOP_REASON_NOT_RETRIED, 1)
	}
}

// TestShutdownRefusesNewCalls checks that while one fetch still runs, health reports NOT_SERVING
// and new calls are refused.
func TestShutdownRefusesNewCalls(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		watchCtx, stopWatching := context.WithCancel(r.Context())
		defer stopWatching()
		health := healthpb.NewHealthClient(r.Conn)
		var watches []healthpb.Health_WatchClient
		for _, service := range []string{"", pb.FetchService_ServiceDesc.ServiceName} {
			watch, err := health.Watch(watchCtx, &healthpb.HealthCheckRequest{Service: service})
			must(r, err)
			watches = append(watches, watch)
			r.wantHealth(watch, healthpb.HealthCheckResponse_SERVING)
		}
		c := r.begin(r.request("/s/k/200:delay=5s"))
		down := r.startShutDown()
		synctest.Wait()
		for _, watch := range watches {
			r.wantHealth(watch, healthpb.HealthCheckResponse_NOT_SERVING)
		}
		wantCode(r.T, "Fetch", r.fetch(r.Context(), r.request("/s/new/200")).err, codes.Unavailable)
		_, err := r.Client.FetchUnary(r.Context(), r.request("/s/new/200"))
		wantCode(r.T, "FetchUnary", err, codes.Unavailable)
		if a := <-c.ended; a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			r.Errorf("the running fetch: %v, %v; want SUCCESS", a.err, a.outcome)
		}
		down()
		r.wantRequests("new", 0)
	})
}

func (r *rig) wantHealth(watch healthpb.Health_WatchClient, want healthpb.HealthCheckResponse_ServingStatus) {
	r.Helper()
	got, err := watch.Recv()
	if err != nil || got.GetStatus() != want {
		r.Errorf("health %s, %v; want %s", got.GetStatus(), err, want)
	}
}

// TestShutdownThatIsNearlyOver gives Shutdown less time than the fetches take. Each has
// its outcome before the time is over (spec P5).
func TestShutdownThatIsNearlyOver(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		time time.Duration // of the drain; 0: it is over at once
		ends time.Duration
	}{
		{"at once", 0, 0},
		{"a second", time.Second, 750 * time.Millisecond},
		{"two seconds", 2 * time.Second, 1750 * time.Millisecond},
		{"ten seconds", 10 * time.Second, 9500 * time.Millisecond},
		{"a minute", time.Minute, 59 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				request := func(key, script string) *pb.FetchRequest {
					in := r.request("/s/" + key + "/" + script)
					in.TimeoutPolicy = patient()
					return in
				}
				many := r.many(r.Context())
				many.start(&pb.Task{Tag: "a", Request: request("many", "silent")}, &pb.Task{Tag: "b", Request: request("dripping", "200:size=1000,drip=1@1s")})
				stream := r.begin(request("stream", "200:size=1000,drip=1@1s"))
				unary := make(chan *pb.FetchOutcome, 1)
				go func() { unary <- r.mustUnary(request("unary", "silent")).GetOutcome() }()
				web := r.post(r.Context(), "/v1/fetch", r.json(request("web", "silent")))
				webUnary := make(chan *pb.FetchUnaryResponse, 1)
				go func() {
					out := new(pb.FetchUnaryResponse)
					text, err := io.ReadAll(r.post(r.Context(), "/v1/fetch:unary", r.json(request("web-unary", "silent"))).Body)
					if err := errors.Join(err, protojson.Unmarshal(text, out)); err != nil {
						r.Error(err)
					}
					webUnary <- out
				}()
				synctest.Wait()
				began := time.Now()
				ctx, cancel := context.WithTimeout(r.Context(), row.time)
				defer cancel()
				down := make(chan error, 1)
				go func() { down <- r.Service.Shutdown(ctx) }()
				many.until(2)
				wantTook(r, "the tasks ended", began, row.ends)
				wantCode(r.T, "FetchMany", many.next(), codes.Unavailable)
				outcomes := map[string]*pb.FetchOutcome{"task a": many.outcomes["a"][0], "task b": many.outcomes["b"][0], "unary": <-unary, "web, unary": (<-webUnary).GetOutcome()}
				for name, a := range map[string]*answer{"stream": <-stream.ended, "web": r.lines(web)} {
					if a.err != nil {
						r.Errorf("%s: %v, want an outcome", name, a.err)
					}
					outcomes[name] = a.outcome
				}
				for name, o := range outcomes {
					r.Log(name)
					r.wantShutdown(o, pb.ErrorClass_ERROR_CLASS_SHUTDOWN)
				}
				if err := <-down; !errors.Is(err, context.DeadlineExceeded) {
					r.Errorf("Shutdown = %v, want %v", err, context.DeadlineExceeded)
				}
				if took := time.Since(began); took > row.time+250*time.Millisecond {
					r.Errorf("the server was down after %s, want %s and a quarter of a second at most", took, row.time)
				}
				for _, req := range r.Origin.AllRequests() {
					<-req.Done
				}
			})
		})
	}
}

// TestShutdownCutsOff: a caller that does not read its outcome delays the end by no more
// than a quarter of a second.
func TestShutdownCutsOff(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/k/200:size=8000000")
		in.TimeoutPolicy = patient()
		stream := r.mustStream(r.Context(), in)
		r.post(r.Context(), "/v1/fetch", r.json(in))
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := r.Service.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("Shutdown = %v, want %v", err, context.DeadlineExceeded)
		}
		wantTook(r, "the server was down", began, 2250*time.Millisecond)
		wantCode(r.T, "Fetch", drain(stream), codes.Unavailable)
		for _, req := range r.Origin.AllRequests() {
			<-req.Done
		}
	})
}

// TestShutdownOfIdleConnections: connections without a call do not delay the end by more
// than the time of a GOAWAY.
func TestShutdownOfIdleConnections(t *testing.T) {
	t.Parallel()
	const settings, ping = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, row := range []struct {
		name string
		web  bool
		sent string // on a connection whose answers are not read, and stays open
		call func(*rig)
		ends time.Duration
	}{
		{name: "none"},
		{name: "a gRPC client", call: func(r *rig) { r.mustUnary(r.request("/s/k/200")) }},
		{name: "an HTTP client", call: func(r *rig) {
			_, _ = io.Copy(io.Discard, r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200"))).Body)
		}},
		{name: "a health watch", ends: 250 * time.Millisecond, call: func(r *rig) {
			watch, err := healthpb.NewHealthClient(r.Conn).Watch(r.Context(), new(healthpb.HealthCheckRequest))
			must(r, err)
			r.wantHealth(watch, healthpb.HealthCheckResponse_SERVING)
		}},
		{name: "a reflection stream", ends: 500 * time.Millisecond, call: func(r *rig) {
			stream, err := reflectv1.NewServerReflectionClient(r.Conn).ServerReflectionInfo(r.Context())
			must(r, err)
			must(r, stream.Send(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}}))
			if _, err := stream.Recv(); err != nil {
				r.Fatal(err)
			}
		}},
		{name: "gRPC, nothing sent", ends: 0},
		{name: "gRPC, half a preface", sent: http2.ClientPreface[:5], ends: 500 * time.Millisecond},
		{name: "gRPC, a client that answers no ping", sent: http2.ClientPreface + settings + ping, ends: 500 * time.Millisecond},
		{name: "HTTP, nothing sent", web: true, ends: 0},
		{name: "HTTP, half a head", web: true, sent: "POST /v1/fetch HTTP/1.1\r\n", ends: 500 * time.Millisecond},
		{name: "HTTP, half the body of another type", web: true, sent: "POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nhalf", ends: 500 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				dial := r.DialGRPC
				if row.web {
					dial = r.DialHTTP
				}
				if row.call != nil {
					row.call(r)
				} else if row.name != "none" {
					conn := r.dial(dial)
					go func() { _, _ = io.Copy(io.Discard, conn) }()
					if _, err := io.WriteString(conn, row.sent); err != nil {
						r.Fatal(err)
					}
				}
				synctest.Wait()
				began := time.Now()
				r.shutDown()
				if took := time.Since(began); took < row.ends || took > row.ends+10*time.Millisecond {
					r.Errorf("the server was down after %s, want %s", took, row.ends)
				}
			})
		})
	}
}

// TestShutdownOfIdleConnectionsWaits: connections stay open while a fetch is in flight,
// and while its outcome is not read.
func TestShutdownOfIdleConnectionsWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/k/200:size=8000000,delay=3s")
		stream := r.mustStream(r.Context(), in)
		synctest.Wait()
		began := time.Now()
		down := r.startShutDown()
		<-time.After(20 * time.Second)
		var end *pb.FetchResponse
		var err error
		for m := end; err == nil; m, err = stream.Recv() {
			end = m
		}
		if last(end).GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			r.Errorf("%v after %v, want the outcome", err, end)
		}
		down()
		if took := time.Since(began).Round(time.Second); took != 20*time.Second {
			r.Errorf("the server was down after %s, want 20 s", took)
		}
	})
}

// endsHeld is a log that holds the calls that end until it is released.
type endsHeld struct {
	slog.Handler
	release <-chan struct{}
}

// Enabled implements slog.Handler.
func (endsHeld) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h endsHeld) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "finished call" {
		<-h.release
	}
	return nil
}

// TestAnswerBeforeEnd checks that a whole answer over HTTP is sent before its call ends, because a
// shutdown may close the connections as soon as the last call has ended.
func TestAnswerBeforeEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		call func(r *rig) *http.Response
		code int
	}{
		{"fetch:unary", func(r *rig) *http.Response {
			return r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200:size=10")))
		}, 200},
		{"explain", func(r *rig) *http.Response {
			return r.post(r.Context(), "/v1/explain", r.json(&pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 503}}))
		}, 200},
		{"raw", func(r *rig) *http.Response { return r.rawCall(r.Context(), "GET", "/s/k/200:size=10") }, 200},
		{"raw, failed", func(r *rig) *http.Response { return r.rawCall(r.Context(), "GET", "/s/k/404") }, 424},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			r := newRig(t, func(c *server.Config) { c.Logger = slog.New(endsHeld{slog.DiscardHandler, release}) })
			late := time.AfterFunc(10*time.Second, func() { close(release) })
			resp := row.call(r)
			text, err := io.ReadAll(resp.Body)
			if !late.Stop() {
				t.Error("the answer is sent after the end of the call")
			} else {
				close(release)
			}
			if err != nil || resp.StatusCode != row.code || resp.ContentLength != int64(len(text)) {
				t.Errorf("%d with %d of %d bytes, %v; want %d with all", resp.StatusCode, len(text), resp.ContentLength, err, row.code)
			}
		})
	}
}

// TestCallerThatStopsReading checks that a call ends with ABORTED after 30 s without progress, and
// that the fetch ends (spec B7).
func TestCallerThatStopsReading(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		request := func(key string) *pb.FetchRequest {
			in := r.request("/s/" + key + "/200:size=8000000")
			in.TimeoutPolicy = patient()
			return in
		}
		began := time.Now()
		stream := r.mustStream(r.Context(), request("grpc"))
		r.post(r.Context(), "/v1/fetch", r.json(request("http")))
		for _, key := range []string{"grpc", "http"} {
			seen := r.awaitRequest(key)
			<-seen.Done
			wantTook(r, "the exchange with the origin ended", began, 30*time.Second)
		}
		err := drain(stream) // what was sent before is still there to be read
		wantCode(r.T, "Fetch", err, codes.Aborted)
		wantReason(r.T, err, "CONSUMER_STALLED")
	})
}

// wantReason checks that an error has a google.rpc.ErrorInfo with that reason.
func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reason && info.GetDomain() == "fetchd.v1" {
			return
		}
	}
	t.Errorf("status %v has no ErrorInfo with reason %s", status.Convert(err).Proto(), reason)
}

// TestCallerWithoutAWindow opens no window for events. A fetch of ordinary length must still finish
// without waiting, because it has no second goroutine.
func TestCallerWithoutAWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.callWithoutWindow(pb.FetchService_Fetch_FullMethodName, r.request("/s/k/503/200:size=40000"))
	line := r.logs.await(t, "fetch finished", 1)[0]
	if line["outcome"] != "success" || line["body_bytes"] != 40_000.0 {
		t.Errorf("log %v, want a success of 40000 bytes", line)
	}
}

// TestAnswerThatIsNotRead checks that a connection is closed if an answer on it is unread for two
// minutes.
func TestAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method string
		in           func(*pb.FetchRequest) proto.Message
	}{
		{"unary", pb.FetchService_FetchUnary_FullMethodName, func(in *pb.FetchRequest) proto.Message { return in }},
		{"stream", pb.FetchService_Fetch_FullMethodName, func(in *pb.FetchRequest) proto.Message {
			in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}
			in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
			return in
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				c := r.callWithoutWindow(row.method, row.in(r.request("/s/k/200:size=100000")))
				r.logs.await(r.T, "fetch finished", 1)
				began := time.Now()
				_, _, _, _ = c.read(1) // it answers pings: the client is alive, but does not read the answer
				wantTook(r, "the connection was closed", began, 2*time.Minute)
			})
		})
	}
}

// callWithoutWindow calls a method on a new connection whose initial window for streams is zero.
func (r *rig) callWithoutWindow(method string, in proto.Message) *rawClient {
	r.Helper()
	message := marshal(r, in)
	c := r.raw(r.dial(r.DialGRPC), window(0))
	c.open(1, method)
	c.send(1, message, 0, -1)
	return c
}
