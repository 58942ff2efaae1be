//go:build linux

package limits

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // without it the service config's health check does nothing
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// dialFrom returns a gRPC connection from a local address, by which fetchd distinguishes
// callers.
func dialFrom(local, addr string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	return grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}, options...)...)
}

// withToken returns a context whose calls show a token, if there is one.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// A method makes n concurrent fetches on a connection. It reads every answer, and waits
// for each fetch to end.
type method func(ctx context.Context, client pb.FetchServiceClient, n int, request *pb.FetchRequest, to *tally)

// fetchUnary makes each with FetchUnary.
func fetchUnary(ctx context.Context, client pb.FetchServiceClient, n int, request *pb.FetchRequest, to *tally) {
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			to.send(1)
			answer, err := client.FetchUnary(ctx, request)
			switch {
			case err == nil:
				to.outcome(answer.GetOutcome())
			default:
				to.code(status.Code(err), 1)
			}
		})
	}
	calls.Wait()
}

// fetchStream makes each with Fetch.
func fetchStream(ctx context.Context, client pb.FetchServiceClient, n int, request *pb.FetchRequest, to *tally) {
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			to.send(1)
			stream, err := client.Fetch(ctx, request)
			if err != nil {
				to.fail(err, 1)
				return
			}
			admitted := false
			var outcome *pb.FetchOutcome
			for {
				m, err := stream.Recv()
				switch {
				case err == nil:
					admitted = true
					for _, e := range m.GetEvents() {
						outcome = e.GetOutcome() // it is the last event
					}
					continue
				case errors.Is(err, io.EOF) && outcome != nil:
					to.outcome(outcome)
				case !admitted:
					to.code(status.Code(err), 1)
				default:
					to.fail(err, 1)
				}
				return
			}
		})
	}
	calls.Wait()
}

// fetchMany makes them as tasks of FetchMany, 250 on a stream.
func fetchMany(ctx context.Context, client pb.FetchServiceClient, n int, request *pb.FetchRequest, to *tally) {
	const tasks = 250 // fetchd accepts 256
	var streams sync.WaitGroup
	for _, part := range chunks(n, tasks) {
		streams.Go(func() {
			to.send(part)
			got, err := manyTasks(ctx, client, part, request, to)
			switch {
			case err != nil && got == 0:
				to.code(status.Code(err), part)
			case got < part:
				to.fail(err, part-got)
			}
		})
	}
	streams.Wait()
}

// manyTasks sends n tasks on one stream and returns how many outcomes came back.
func manyTasks(ctx context.Context, client pb.FetchServiceClient, n int, request *pb.FetchRequest, to *tally) (int, error) {
	stream, err := client.FetchMany(ctx)
	if err != nil {
		return 0, err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		for i := range n {
			task := &pb.Task{Tag: name(i), Request: request}
			if stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{task}}) != nil {
				return // Recv returns the reason
			}
		}
		_ = stream.CloseSend() // the same
	})
	seen := make(map[string]bool)
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return len(seen), err
		}
		for _, r := range m.GetEvents() {
			if o := r.GetEvent().GetOutcome(); o != nil && !seen[r.GetTag()] {
				seen[r.GetTag()] = true
				to.outcome(o)
			}
		}
	}
}

// bystander is another caller that fetches one small page every 100 ms. It retries
// refusals as deploy/grpc/service-config.json says.
type bystander struct {
	conn  *grpc.ClientConn
	stop  context.CancelFunc
	calls sync.WaitGroup

	mu       sync.Mutex
	sent     int
	good     int // the page
	outcomes int // of any kind
	refused  int // after all retries
	hung     int // without an answer within the time limit
	other    error
	took     []time.Duration
}

const (
	bystanderAddress = "127.0.0.2"
	bystanderEvery   = 100 * time.Millisecond
)

// bystanderPatience bounds the time for an answer. It is longer than any attack, also on a busy machine.
const bystanderPatience = 30 * time.Second

func startBystander(ctx context.Context, s *service, config, url string) (*bystander, error) {
	conn, err := dialFrom(bystanderAddress, s.grpcAddr, grpc.WithDefaultServiceConfig(config))
	if err != nil {
		return nil, err
	}
	b := &bystander{conn: conn}
	calling := ctx
	if s.tokens != nil {
		calling = withToken(ctx, s.tokens.bystander)
	}
	client := pb.NewFetchServiceClient(conn)
	sending, stop := context.WithCancel(ctx)
	b.stop = stop
	b.calls.Go(func() {
		tick := time.NewTicker(bystanderEvery)
		defer tick.Stop()
		for {
			b.calls.Go(func() { b.call(calling, client, url) })
			select {
			case <-tick.C:
			case <-sending.Done():
				return
			}
		}
	})
	return b, nil
}

func (b *bystander) call(ctx context.Context, client pb.FetchServiceClient, url string) {
	ctx, cancel := context.WithTimeout(ctx, bystanderPatience)
	defer cancel()
	began := time.Now()
	answer, err := client.FetchUnary(ctx, &pb.FetchRequest{Url: url})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent++
	b.took = append(b.took, time.Since(began))
	switch status.Code(err) {
	case codes.OK:
		b.outcomes++
		if answer.GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
			b.good++
		}
	case codes.ResourceExhausted:
		b.refused++
	case codes.DeadlineExceeded:
		b.hung++
	default:
		b.other = err
	}
}

// finish stops sending and waits for the calls.
func (b *bystander) finish() {
	b.stop()
	b.calls.Wait()
	b.conn.Close()
}
