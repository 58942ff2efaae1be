package get

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// startCable returns an address whose connections lead to another one until they are cut.
func startCable(t *testing.T, to string) (address string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	var running sync.WaitGroup
	var mu sync.Mutex
	var ends []net.Conn
	cut = func() {
		mu.Lock()
		defer mu.Unlock()
		_ = l.Close()
		for _, end := range ends {
			_ = end.Close()
		}
	}
	join := func(near net.Conn) bool {
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, near, far)
		running.Go(func() { _, _ = io.Copy(far, near) })
		running.Go(func() { _, _ = io.Copy(near, far) })
		return true
	}
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil || !join(near) {
				return
			}
		}
	})
	t.Cleanup(func() { cut(); running.Wait() })
	return l.Addr().String(), cut
}

// TestLostAnswer cuts the connection to the service after the origin has the request. A POST without
// a key may have taken effect. Any other request may be sent again.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		want int
	}{
		{"GET", nil, cli.ExitService},
		{"PUT", []string{"-X", "PUT"}, cli.ExitService},
		{"POST", []string{"-d", "order"}, cli.ExitNotIdempotent},
		{"PATCH", []string{"-X", "PATCH", "-q"}, cli.ExitNotIdempotent},
		{"POST that may be repeated", []string{"-X", "POST", "--idempotency-key", "order-17"}, cli.ExitService},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), t.TempDir()
			addr, cut := startCable(t, clitest.Server(t))
			ended := make(chan clitest.Result, 1)
			go func() {
				ended <- fetchctl.With(t.Context(), "", nil, append([]string{"get", "--server", addr, "-o", dir + "/file", o.URL("http", "/s/k/silent")}, tt.args...)...)
			}()
			if _, err := o.Await(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			cut()
			got := <-ended
			if told := strings.Contains(got.Err, "may have taken effect"); got.Code != tt.want || told != (tt.want == cli.ExitNotIdempotent) {
				t.Errorf("exit status %d, want %d\n%s", got.Code, tt.want, got.Err)
			}
			clitest.Only(t, dir)
		})
	}
}

// TestLostPOST checks which errors of a service mean that a POST may have been sent.
func TestLostPOST(t *testing.T) {
	t.Parallel()
	failed := outcomeEvent(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, Error: &pb.FetchError{
		FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT, StopReason: pb.StopReason_STOP_REASON_STOPPED.Enum(), Retryable: true}})
	for _, tt := range []struct {
		name  string
		fetch func(grpc.ServerStreamingServer[pb.FetchResponse]) error
		want  int
	}{
		{"unavailable at once", sends(status.Error(codes.Unavailable, "reset")), cli.ExitNotIdempotent},
		{"unavailable after an event", sends(status.Error(codes.Unavailable, "reset"), startedEvent(0)), cli.ExitNotIdempotent},
		{"no outcome", sends(nil), cli.ExitNotIdempotent},
		{"over a limit at once", sends(status.Error(codes.ResourceExhausted, "full")), cli.ExitService},
		{"over a limit after an event", sends(status.Error(codes.ResourceExhausted, "large"), startedEvent(0)), cli.ExitNotIdempotent},
		{"not allowed", sends(status.Error(codes.PermissionDenied, "no")), cli.ExitService},
		{"not usable", sends(status.Error(codes.InvalidArgument, "no")), cli.ExitUsage},
		{"an outcome", sends(nil, failed), cli.ExitTransient},
	} {
		if got := fetchctl.Run(t, "get", "-X", "POST", "--server", startBroken(t, tt.fetch), "http://origin.test/"); got.Code != tt.want {
			t.Errorf("%s: exit status %d, want %d\n%s", tt.name, got.Code, tt.want, got.Err)
		}
	}
	if got := fetchctl.Run(t, "get", "-X", "POST", "--server", rig.Origin(t).Addr("refused"), "http://origin.test/"); got.Code != cli.ExitService {
		t.Errorf("nothing listens: exit status %d, want %d\n%s", got.Code, cli.ExitService, got.Err)
	}
}
