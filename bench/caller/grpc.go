package caller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// perConnection is how many calls go over one connection; servers take 1,000.
const perConnection = 500

// dial makes the connections that so many calls need.
func dial(addr string, calls int) ([]pb.FetchServiceClient, func(), error) {
	if addr == "" {
		return nil, nil, errors.New("grpc: give the HOST:PORT of the service")
	}
	var conns []*grpc.ClientConn
	closed := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	var clients []pb.FetchServiceClient
	for range (calls + perConnection - 1) / perConnection {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			closed()
			return nil, nil, err
		}
		conns = append(conns, conn)
		clients = append(clients, pb.NewFetchServiceClient(conn))
	}
	return clients, closed, nil
}

// overAll gives each open fetch a loop and its share of the connections.
func overAll(o *Options, one func(ctx context.Context, c pb.FetchServiceClient, r *recorder) error) (*load, error) {
	clients, closed, err := dial(o.GRPC, o.Open)
	if err != nil {
		return nil, err
	}
	l := &load{loops: make([]loop, o.Open), close: closed}
	for i := range l.loops {
		client := clients[i%len(clients)]
		l.loops[i] = func(ctx context.Context, r *recorder) {
			for !r.over() {
				began := time.Now()
				r.done(began, one(ctx, client, r))
			}
		}
	}
	return l, nil
}

// unary is FetchUnary, with its defaults but for what it tells of attempts.
func unary(level pb.EventLevel) func(*Options, int64) (*load, error) {
	return func(o *Options, size int64) (*load, error) {
		req := &pb.FetchUnaryRequest{Request: &pb.FetchRequest{Url: o.Target, EventLevel: level}}
		return overAll(o, func(ctx context.Context, c pb.FetchServiceClient, r *recorder) error {
			resp, err := c.FetchUnary(ctx, req)
			if err != nil {
				return err
			}
			out := resp.GetOutcome()
			r.arrived(int64(len(out.GetInlineBody())))
			return checkOutcome(out, out.GetResponse(), int64(len(out.GetInlineBody())), size)
		})
	}
}

// stream is Fetch with its default events. Every chunk is read.
func stream(o *Options, size int64) (*load, error) {
	req := &pb.FetchRequest{Url: o.Target}
	return overAll(o, func(ctx context.Context, c pb.FetchServiceClient, r *recorder) error {
		var got int64
		var head *pb.HttpResponse
		for m, err := range client.Wrap(c).Events(ctx, req) {
			if err != nil {
				return err
			}
			switch e := m.GetEvent().(type) {
			case *pb.FetchResponse_ResponseStarted:
				head = e.ResponseStarted.GetResponse()
			case *pb.FetchResponse_BodyChunk:
				n := int64(len(e.BodyChunk.GetData()))
				got += n
				r.arrived(n)
			case *pb.FetchResponse_Outcome:
				return checkOutcome(e.Outcome, head, got, size)
			}
		}
		return nil // not reached: the last message is an outcome or an error
	})
}

// checkOutcome holds an outcome against what was asked for.
func checkOutcome(out *pb.FetchOutcome, head *pb.HttpResponse, got, want int64) error {
	if out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return fmt.Errorf("%w: outcome %s: %v", errAnswer, out.GetKind(), out.GetError())
	}
	return check(int(head.GetStatusCode()), got, want)
}
