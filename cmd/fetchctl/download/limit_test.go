package download

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// endlessService has bodies that come as fast as they are read. Its other
// methods are never called.
type endlessService struct {
	pb.FetchServiceClient
	chunks int // of 1 KiB, in each body
}

func (s endlessService) Fetch(context.Context, *pb.FetchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.FetchResponse], error) {
	return &endlessStream{left: s.chunks}, nil
}

type endlessStream struct {
	grpc.ClientStream
	started bool
	at      int64
	left    int
}

func (s *endlessStream) Recv() (*pb.FetchResponse, error) {
	e := new(pb.FetchEvent)
	switch {
	case !s.started:
		s.started = true
		e.Event = &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{Response: &pb.HttpResponse{StatusCode: 200}}}
	case s.left > 0:
		e.Event = &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{OffsetBytes: s.at, Data: make([]byte, 1024)}}
		s.left, s.at = s.left-1, s.at+1024
	case s.left == 0:
		s.left--
		e.Event = &pb.FetchEvent_Outcome{Outcome: &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Response: &pb.HttpResponse{StatusCode: 200}, BodySummary: &pb.BodySummary{SizeBytes: s.at}}}
	default:
		return nil, io.EOF
	}
	return &pb.FetchResponse{Events: []*pb.FetchEvent{e}}, nil
}

// A limited rate holds for all files together, to the nanosecond, however many
// are in flight.
func TestDownloadLimitRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		files, jobs int
		rate        *cli.ByteSize
		want        time.Duration
	}{
		{"one file", 1, 1, new(cli.ByteSize(16 << 10)), 4 * time.Second},
		{"four at once", 4, 4, new(cli.ByteSize(16 << 10)), 16 * time.Second},
		{"four, two at once", 4, 2, new(cli.ByteSize(32 << 10)), 8 * time.Second},
		{"no limit", 4, 4, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := &Command{Dir: dir, Jobs: tt.jobs, LimitRate: tt.rate, Quiet: true}
				for i := range tt.files {
					c.URL = append(c.URL, "http://origin.test/"+string(rune('a'+i)))
				}
				d, err := newRun(t.Context(), c, new(cli.Program))
				must(t, err)
				defer d.Close()
				started := time.Now()
				if code, err := d.Fetch(t.Context(), endlessService{chunks: 64}); code != cli.ExitOK || err != nil {
					t.Errorf("exit code %d, %v", code, err)
				}
				if spent := time.Since(started); spent != tt.want {
					t.Errorf("%d KiB at %d B/s took %s, want %s", 64*tt.files, tt.rate, spent, tt.want)
				}
			})
		})
	}
}

// Time in which nothing is asked for is not saved up, and a wait ends with its
// context.
func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, started := &limiter{rate: 1000}, time.Now()
		for range 2 {
			must(t, l.pay(t.Context(), 500))
			<-time.After(10 * time.Second)
		}
		if spent := time.Since(started); spent != 21*time.Second {
			t.Errorf("took %s, want 21s", spent)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.pay(ctx, 1_000_000); err == nil || time.Since(started) != 22*time.Second {
			t.Errorf("a wait that was given up: %v after %s", err, time.Since(started))
		}
	})
}

// A rate is not divided among more files than it can serve.
func TestDownloadRateJobs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate       cli.ByteSize
		jobs, want int
	}{{8 << 10, 4, 1}, {20 << 10, 4, 2}, {1 << 20, 4, 4}} {
		c := Command{Jobs: tt.jobs, LimitRate: &tt.rate}
		if got := c.jobs(); got != tt.want {
			t.Errorf("%d jobs at %d B/s: %d, want %d", tt.jobs, tt.rate, got, tt.want)
		}
	}
	if got := (&Command{Jobs: 4}).jobs(); got != 4 {
		t.Errorf("4 jobs without a limit: %d, want 4", got)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
