package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// knows configures an authenticator with one valid token.
func knows(c *server.Config) {
	c.Authenticate = func(shown server.Credentials) (string, error) {
		if shown.Token != "right" {
			return "", errors.New("send an Authorization header: Bearer TOKEN")
		}
		return "caller", nil
	}
}

// TestUnauthenticatedCallsAreRefusedAtOnce checks that a caller without credentials is refused by the
// headers of the call, before its request uses memory.
func TestUnauthenticatedCallsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	for _, method := range []string{pb.FetchService_FetchUnary_FullMethodName, pb.FetchService_Fetch_FullMethodName, pb.FetchService_FetchMany_FullMethodName, pb.FetchService_Explain_FullMethodName} {
		c := r.raw(r.dial(r.DialGRPC))
		c.open(1, method)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // an admitted call waits twice as long for its request
		if _, _, _, err := c.read(1); err != nil {
			t.Fatalf("%s: %v before an answer", method, err)
		}
	}
	_, err := r.Client.Explain(t.Context(), new(pb.ExplainRequest))
	wantCode(t, "without a token", err, codes.Unauthenticated)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "bearer right")
	if _, err := r.Client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: r.request("/s/k/200")}); err != nil {
		t.Errorf("with the token: %v", err)
	}
}

// TestWebBodyThatDoesNotCome checks that a body that no handler reads delays neither the end of its
// connection nor the shutdown.
func TestWebBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, head string }{
		{"of a GET", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"},
		{"of another type", "POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n"},
		{"of a path that is not there", "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				conn := r.dial(r.DialHTTP)
				if _, err := io.WriteString(conn, row.head); err != nil {
					r.Fatal(err)
				}
				began := time.Now()
				r.shutDown()
				if took := time.Since(began); took > 12*time.Second {
					r.Errorf("Shutdown took %s, want the 10 s that a request has", took)
				}
			})
		})
	}
}

// TestWebSilence checks that over HTTP/2 a fetch may be silent for longer than the stall limit,
// which is for callers that do not read.
func TestWebSilence(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	r := newRig(t, func(c *server.Config) {
		c.Stall = 1500 * time.Millisecond
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	})
	r.HTTPClient.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	in := r.request("/s/k/200:size=20000,drip=10000@3s")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
	zero := int64(0)
	in.BodyPolicy = &pb.BodyPolicy{HoldBackBytes: &zero}
	resp := r.post(t.Context(), "/v1/fetch", r.json(in))
	if resp.ProtoMajor != 2 {
		t.Errorf("%s, want HTTP/2", resp.Proto)
	}
	if a := r.lines(resp); a.err != nil || a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		t.Errorf("%v, %v; want SUCCESS", a.err, a.outcome.GetError())
	}
}

// TestWebAnswerHoldsItsSlot checks that a fetch keeps its slot until its answer has been read.
func TestWebAnswerHoldsItsSlot(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200:size=1000000")))
		synctest.Wait()
		resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/b/200")))
		r.wantStatus(resp, 429, codes.ResourceExhausted, "")
		<-time.After(31 * time.Second)
		if resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/c/200"))); resp.StatusCode != 200 {
			r.Errorf("after the unread call ended: %s", resp.Status)
		}
	}, func(c *server.Config) { c.MaxFetches = 1 })
}

// TestWebLogsNoRequest checks that an error of JSON is not logged: it quotes the request, which may
// hold a secret header. The caller receives it.
func TestWebLogsNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, body := range []string{`{"headers":[{"name":"a","value":314159265358}]}`, `{"body":"` + marker + `!"}`, `{"retryPolicy":{"idempotencyKey":` + marker + `}}`, `{"event_level":"` + marker + `"}`, `{"` + marker + `":1}`} {
		r.wantStatus(r.post(t.Context(), "/v1/fetch", body), 400, codes.InvalidArgument, "")
	}
	r.logs.await(t, "finished call", 5)
	if text := fmt.Sprint(r.logs.all(t)); strings.Contains(text, "314159265358") || strings.Contains(text, marker) {
		t.Error("the log holds what the request held")
	}
}

// TestFetchManyQueuedBodies checks that no further task is read while there is no memory
// for one, and that each runs once earlier ones have ended.
func TestFetchManyQueuedBodies(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		var sent atomic.Int32
		go func() {
			for n := range 40 {
				task := r.task(fmt.Sprint(n), fmt.Sprintf("/s/k%d/200:delay=1s", n))
				task.Request.Method, task.Request.Body = "PUT", make([]byte, 500_000)
				if m.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{task}}) != nil {
					return
				}
				sent.Add(1)
			}
			_ = m.CloseSend()
		}()
		synctest.Wait()
		if n := sent.Load(); n > 30 { // including tasks that are still being sent
			r.Errorf("%d tasks of 500 kB were accepted with 7 MiB of memory", n)
		}
		m.until(40)
		for n := range 40 {
			m.wantClass(fmt.Sprint(n), ok)
		}
	}, func(c *server.Config) { c.MemoryBudget = 12 << 20 })
}

// TestFetchManyWithoutMemory checks that a task without memory, and without another task
// to wait for, ends as OUT_OF_MEMORY, and that the stream continues.
func TestFetchManyWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { c.MemoryBudget = 4 << 20 })
	m := r.many(t.Context())
	m.start(&pb.Task{Tag: "long", Request: r.put("long", 1<<20)})
	m.until(1)
	m.start(r.task("short", "/s/short/200"))
	m.finish("long", "short")
	m.wantClass("long", pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY)
	m.wantClass("short", ok)
	r.wantRequests("long", 0)
}

// TestResumePointPastTheLimit checks that such a resume point is refused, whatever oversize_action
// is.
func TestResumePointPastTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	most := int64(50)
	in := r.request("/s/k/200:size=100,etag=%22v%22,range")
	in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: &most, OversizeAction: pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE,
		ResumePoint: &pb.ResumePoint{OffsetBytes: 100, Validator: `"v"`}}
	wantViolations(t, r.fetch(t.Context(), in).err, []string{"body_policy.resume_point.offset_bytes"})
}

// selfSigned returns a certificate for 127.0.0.1 and example.com, and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
}
