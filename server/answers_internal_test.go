package server

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "fetchd/gen/fetchd/v1"
)

// from is the context of a call from an address.
func from(t *testing.T, address string) context.Context {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return peer.NewContext(t.Context(), &peer.Peer{Addr: addr})
}

// TestAnswers that are not read have their caller refused, then everybody, and
// nobody once they are sent or dropped.
func TestAnswers(t *testing.T) {
	t.Parallel()
	a := newAnswers(func(context.Context) {}, func(string) {})
	greedy, other := from(t, "192.0.2.1:1"), from(t, "192.0.2.2:1")
	long := wrapperspb.Bytes(make([]byte, 1<<20))
	if m := wrapperspb.Bytes(make([]byte, 32<<10-8)); a.watched(greedy, m) != any(sized{m, proto.Size(m)}) {
		t.Error("a short answer is counted")
	}
	var kept []*unread
	keep := func(ctx context.Context) {
		u, ok := a.watched(ctx, long).(*unread)
		if !ok {
			t.Fatal("a long answer is not counted")
		}
		kept = append(kept, u)
	}
	for range 64 {
		keep(greedy)
	}
	if err := a.enter(greedy); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a caller with 64 MiB unread: %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := a.enter(other); err != nil {
		t.Errorf("another caller: %v", err)
	}
	for _, address := range []string{"192.0.2.3:1", "192.0.2.4:1", "192.0.2.5:1"} {
		for range 64 {
			keep(from(t, address))
		}
	}
	if err := a.enter(other); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("with 256 MiB unread: %v, want RESOURCE_EXHAUSTED", err)
	}
	for _, u := range kept {
		u.released()
	}
	if err := a.enter(greedy); err != nil || a.bytes != 0 || len(a.callers) != 0 {
		t.Errorf("once all is read: %v, %d bytes of %d callers", err, a.bytes, len(a.callers))
	}
}

// TestHealthIsAlwaysTold, however much lies unread.
func TestHealthIsAlwaysTold(t *testing.T) {
	t.Parallel()
	a := newAnswers(func(context.Context) {}, func(string) {})
	a.add("192.0.2.1", maxUnread+1)
	g := &gate{logger: slog.New(slog.DiscardHandler), unread: a}
	for method, want := range map[string]codes.Code{healthpb.Health_Check_FullMethodName: codes.OK, pb.FetchService_FetchUnary_FullMethodName: codes.ResourceExhausted} {
		_, err := g.unary(recovery.UnaryServerInterceptor())(from(t, "192.0.2.9:1"), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %s", method, err, want)
		}
	}
}

// TestCodecReleases a long message when gRPC is done with it, and when it has let
// go of it without a word.
func TestCodecReleases(t *testing.T) {
	t.Parallel()
	long := wrapperspb.Bytes(make([]byte, 100_000))
	for _, row := range []struct {
		name string
		end  func(mem.BufferSlice)
	}{
		{"sent", func(b mem.BufferSlice) { b.Free() }},
		{"dropped", func(mem.BufferSlice) {}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			released := make(chan struct{})
			out, err := newCodec().Marshal(&unread{measured(long), time.NewTimer(time.Hour), func() { close(released) }}) // twice would panic
			if err != nil || out.Len() != proto.Size(long) || cap(out[0].ReadOnlyData()) > 2*out.Len() {
				t.Fatalf("Marshal = %d bytes, %v; want %d in a buffer of that length", out.Len(), err, proto.Size(long))
			}
			row.end(out)
			out = nil
			for range 100 {
				runtime.GC()
				select {
				case <-released:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
			t.Error("never released")
		})
	}
}

// TestAnswerDroppedInABubble: its cleanup touches no timer, for that would be of
// the bubble and the cleanup is not; and its caller's patience hangs up on nobody.
func TestAnswerDroppedInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hungUp atomic.Bool
		a := newAnswers(func(context.Context) { hungUp.Store(true) }, func(string) {})
		long := a.watched(from(t, "192.0.2.1:1"), wrapperspb.Bytes(make([]byte, 100_000)))
		if _, err := newCodec().Marshal(long); err != nil {
			t.Fatal(err)
		}
		for a.load() != 0 {
			runtime.GC()
		}
		<-time.After(2 * unreadTime)
		if hungUp.Load() {
			t.Error("the connection of an answer that was dropped is closed")
		}
	})
}

// TestRequestOfTooManyElements is refused before it takes memory; what is counted
// is the elements, wherever they stand.
func TestRequestOfTooManyElements(t *testing.T) {
	t.Parallel()
	body := func(n int) *pb.FetchRequest {
		return &pb.FetchRequest{Url: "http://a.example/", Body: make([]byte, n)}
	}
	for _, row := range []struct {
		name string
		in   proto.Message
		at   string // of what is refused
	}{
		{"a long body", &pb.FetchUnaryRequest{Request: body(1 << 20)}, ""},
		{"as many headers as may be", &pb.FetchRequest{Headers: make([]*pb.Header, maxElements)}, ""},
		{"one more", &pb.FetchRequest{Headers: make([]*pb.Header, maxElements+1)}, "headers"},
		{"in a message", &pb.FetchUnaryRequest{Request: &pb.FetchRequest{Headers: make([]*pb.Header, maxElements+1)}}, "request.headers"},
		{"packed", &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{ExcludedStatusCodes: make([]int32, maxElements+1)}}, "retry_policy.excluded_status_codes"},
		{"strings", &pb.FetchRequest{Precondition: &pb.Precondition{Etags: make([]string, maxElements+1)}}, "precondition.etags"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			data, err := proto.Marshal(row.in)
			if err != nil {
				t.Fatal(err)
			}
			got := row.in.ProtoReflect().New().Interface()
			if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got); err != nil {
				t.Fatal(err)
			}
			err = checkElements(got)
			switch {
			case row.at == "" && (err != nil || !proto.Equal(got, row.in)):
				t.Errorf("refused: %v", err)
			case row.at != "" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), row.at+" is where")):
				t.Errorf("%v, want INVALID_ARGUMENT at %s", err, row.at)
			}
		})
	}
}

// TestCallerAt names who is at an address.
func TestCallerAt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ addr, want string }{
		{"192.0.2.1:5", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:5", "192.0.2.1"},
		{"[2001:db8:1:2::3]:5", "2001:db8:1:2::/64"},
		{"[2001:db8:1:2:ffff::]:6", "2001:db8:1:2::/64"},
		{"[2001:db8:1:3::3]:5", "2001:db8:1:3::/64"},
	} {
		addr, err := net.ResolveTCPAddr("tcp", row.addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := callerAt(addr); got != row.want {
			t.Errorf("callerAt(%s) = %s, want %s", row.addr, got, row.want)
		}
	}
	if got := callerAt(&net.UnixAddr{Name: "/run/x", Net: "unix"}); got != "/run/x" {
		t.Errorf("a socket of this machine: %q", got)
	}
}
