package caller

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// perConnection is the number of calls on one connection. The maximum of the servers is 1,000.
const perConnection = 500

// dial opens the connections that the given number of calls needs.
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

// overAll returns a load that calls one, and spreads the calls over the connections.
func overAll(o *Options, one func(ctx context.Context, c pb.FetchServiceClient, r *recorder) error) (*load, error) {
	clients, closed, err := dial(o.GRPC, o.Open)
	if err != nil {
		return nil, err
	}
	return repeat(o, func(i int) call {
		client := clients[i%len(clients)]
		return func(ctx context.Context, r *recorder) error { return one(ctx, client, r) }
	}, closed), nil
}

// unary calls FetchUnary with its defaults, except the event level.
func unary(level pb.EventLevel) func(*Options, int64) (*load, error) {
	return func(o *Options, size int64) (*load, error) {
		req := o.request()
		req.EventLevel = level
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

// stream calls Fetch with its default events and reads every chunk.
func stream(o *Options, size int64) (*load, error) {
	req := o.request()
	return overAll(o, func(ctx context.Context, c pb.FetchServiceClient, r *recorder) error {
		var got int64
		var head *pb.HttpResponse
		for m, err := range client.Wrap(c).Events(ctx, req) {
			if err != nil {
				return err
			}
			switch e := m.GetEvent().(type) {
			case *pb.FetchEvent_ResponseStarted:
				head = e.ResponseStarted.GetResponse()
			case *pb.FetchEvent_BodyChunk:
				n := int64(len(e.BodyChunk.GetData()))
				got += n
				r.arrived(n)
			case *pb.FetchEvent_Outcome:
				return checkOutcome(e.Outcome, head, got, size)
			}
		}
		return nil // not reached: the last message is an outcome or an error
	})
}

// The stores that loads use.
const (
	storeName   = "bodies"
	archiveName = "records"
)

// Stores returns the file --stores-file of a service with the stores that loads use, in a folder.
func Stores(folder string) []byte {
	return fmt.Appendf(nil, "stores: {%[1]s: {url: \"file://%[3]s/bodies\"}, %[2]s: {url: \"warc+file://%[3]s/records\"}}\n",
		storeName, archiveName, filepath.ToSlash(folder))
}

// store calls FetchUnary, and lets the service write the bodies to a store. Each loop replaces its
// own object.
func store(o *Options, size int64) (*load, error) {
	clients, closed, err := dial(o.GRPC, o.Open)
	if err != nil {
		return nil, err
	}
	return repeat(o, func(i int) call {
		req := o.request()
		req.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: storeName, Key: fmt.Sprint(i)}}}
		return func(ctx context.Context, r *recorder) error {
			resp, err := clients[i%len(clients)].FetchUnary(ctx, req)
			if err != nil {
				return err
			}
			out := resp.GetOutcome()
			r.arrived(out.GetStoredObject().GetSizeBytes())
			return checkOutcome(out, out.GetResponse(), out.GetStoredObject().GetSizeBytes(), size)
		}
	}, closed), nil
}

// checkOutcome returns an error unless the outcome is a success of the wanted size.
func checkOutcome(out *pb.FetchOutcome, head *pb.HttpResponse, got, want int64) error {
	if out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return fmt.Errorf("%w: outcome %s: %v", errResponse, out.GetKind(), out.GetError())
	}
	return check(int(head.GetStatusCode()), got, want)
}
