package fetchdtest_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStart fetches through both APIs, over loopback and in memory, from several listeners of
// the origin.
func TestStart(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, inMemory bool) {
		t.Helper()
		s := fetchdtest.Start(t, fetchdtest.Options{InMemory: inMemory})
		for _, listener := range []string{"http", "https", "h2fault"} {
			if text, err := title(t.Context(), client.New(s.Conn), s.Origin.URL(listener, "/s/"+listener+"/200:body=hello")); err != nil || text != "hello" {
				t.Errorf("%s: %q, %v; want hello", listener, text, err)
			}
		}
		for listener, want := range map[string]pb.ErrorClass{
			"refused":        pb.ErrorClass_ERROR_CLASS_CONNECT_REFUSED,
			"tls-wrong-name": pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE,
		} {
			request := &pb.FetchRequest{Url: s.Origin.URL(listener, "/"), RetryPolicy: &pb.RetryPolicy{MaxAttempts: new(int32(1))}}
			out, err := s.Client.FetchUnary(t.Context(), request)
			if got := out.GetOutcome().GetError().GetErrorClass(); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", listener, got, err, want)
			}
		}
		resp, err := s.HTTPClient.Post(s.URL+"/v1/fetch:unary", "application/json", strings.NewReader(`{"url":"`+s.Origin.URL("http", "/s/web/200")+`"}`))
		must.Succeed(t, err)
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || len(s.Origin.Requests("web")) != 1 {
			t.Errorf("POST: %s, %s, %v; want 200 and one request at the origin", resp.Status, text, err)
		}
	}
	t.Run("loopback", func(t *testing.T) { t.Parallel(); run(t, false) })
	t.Run("memory", func(t *testing.T) { t.Parallel(); synctest.Test(t, func(t *testing.T) { run(t, true) }) })
}

// TestBubble checks that waits are exact in a bubble.
func TestBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fetchdtest.Start(t, fetchdtest.Options{InMemory: true})
		start := time.Now()
		text, err := title(t.Context(), client.New(s.Conn), s.Origin.URL("http", "/s/busy/429:retry-after=20/200:body=hello"))
		if took := time.Since(start); text != "hello" || took != 20*time.Second {
			t.Errorf("%q, %v after %v; want hello after 20 s", text, err, took)
		}
	})
}

// TestShare starts two services with one origin.
func TestShare(t *testing.T) {
	t.Parallel()
	first := fetchdtest.Start(t, fetchdtest.Options{})
	second := fetchdtest.Start(t, fetchdtest.Options{Origin: first.Origin})
	for _, s := range []*fetchdtest.Server{first, second} {
		if _, err := title(t.Context(), client.New(s.Conn), first.Origin.URL("http", "/s/k/200")); err != nil {
			t.Error(err)
		}
	}
	if err := second.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if _, err := title(t.Context(), client.New(second.Conn), first.Origin.URL("http", "/s/k/200")); err == nil {
		t.Error("a closed service answers")
	}
	if _, err := title(t.Context(), client.New(first.Conn), first.Origin.URL("http", "/s/k/200")); err != nil {
		t.Errorf("after the other service was closed: %v", err)
	}
}

// TestNoOrigin checks that the default configuration reaches nothing.
func TestNoOrigin(t *testing.T) {
	t.Parallel()
	other := fetchdtest.Start(t, fetchdtest.Options{})
	s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true})
	_, err := title(t.Context(), client.New(s.Conn), other.URL+"/")
	if failed, ok := errors.AsType[*client.Error](err); !ok || failed.Outcome.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED {
		t.Errorf("%v, want TARGET_BLOCKED", err)
	}
}

// TestCloseAtOnce closes a server that may not have begun to serve.
func TestCloseAtOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		s, err := fetchdtest.New(fetchdtest.Options{InMemory: true, Fake: pb.UnimplementedFetchServiceServer{}})
		must.Succeed(t, err)
		if err := s.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
}

// TestKill ends a service in the middle of a fetch.
func TestKill(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{})
	go func() {
		if _, err := s.Origin.Await(t.Context(), "silent", 1); err != nil {
			t.Error(err)
		}
		s.Kill()
	}()
	for range 2 {
		if _, err := title(t.Context(), client.New(s.Conn), s.Origin.URL("http", "/s/silent/silent")); status.Code(err) != codes.Unavailable {
			t.Errorf("%v, want UNAVAILABLE", err)
		}
	}
}

// TestNewRefuses checks that invalid options leave nothing running. TestMain looks
// for goroutines.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]fetchdtest.Options{
		"negative Heartbeat":       {Configure: func(c *server.Config) { c.Heartbeat = -1 }},
		"an origin, but in memory": {InMemory: true, Origin: new(origin.Origin)},
	} {
		if s, err := fetchdtest.New(options); s != nil || err == nil {
			t.Errorf("%s: New = %v, %v; want an error", name, s, err)
		}
	}
}

type broken struct {
	pb.UnimplementedFetchServiceServer
}

func (broken) Fetch(*pb.FetchRequest, grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return status.Error(codes.DataLoss, "as the test wants")
}

func TestFake(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{Fake: broken{}})
	if _, err := client.New(s.Conn).Get(t.Context(), "http://example.com/"); status.Code(err) != codes.DataLoss {
		t.Errorf("Get = %v, want DATA_LOSS", err)
	}
}
