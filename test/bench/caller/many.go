package caller

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/wait"
)

// perStream is how many tasks are in flight on one stream, of the 256 that a server reads.
const perStream = 240

// many runs FetchMany on as many streams as the fetches in flight need. A policy that is not nil
// allows a body of its size.
func many(policy *pb.BodyPolicy) func(*Options, int64) (*load, error) {
	return func(o *Options, size int64) (*load, error) {
		request := o.request()
		if policy != nil {
			request.BodyPolicy = proto.CloneOf(policy)
			request.BodyPolicy.MaxSizeBytes = &size
		}
		return overStreams(o, request, size)
	}
}

// overStreams returns a load that makes the request over FetchMany.
func overStreams(o *Options, request *pb.FetchRequest, size int64) (*load, error) {
	streams := (o.Open + perStream - 1) / perStream
	clients, closed, err := dial(o.GRPC, 1)
	if err != nil {
		return nil, err
	}
	l := &load{loops: make([]loop, streams), close: closed}
	for i := range l.loops {
		open := o.Open / streams
		if i < o.Open%streams {
			open++
		}
		l.loops[i] = func(ctx context.Context, r *recorder) {
			for !r.over() {
				runMany(ctx, client.Wrap(clients[0]), r, o, request, open, size)
			}
		}
	}
	return l, nil
}

// runMany keeps fetches in flight until the recorder is over. Each has its own copy of the request,
// which is used again after its result.
func runMany(ctx context.Context, c *client.Client, r *recorder, o *Options, one *pb.FetchRequest, open int, size int64) {
	started := make(map[*pb.FetchRequest]*time.Time, open)
	free := make(chan *pb.FetchRequest, open)
	for range open {
		request := proto.CloneOf(one)
		started[request] = new(time.Time)
		free <- request
	}
	requests := func(yield func(*pb.FetchRequest) bool) {
		for !r.over() {
			if o.Hold && !wait.For(ctx, batchEvery*time.Duration(o.Open)/time.Duration(batch*open)) {
				return
			}
			request := <-free
			*started[request] = time.Now()
			if !yield(request) {
				return
			}
		}
	}
	for result, err := range c.Many(ctx, requests, client.ManyOptions{Open: open}) {
		if result == nil {
			r.done(time.Now(), err)
			return
		}
		if out := result.Outcome; out != nil {
			n := int64(len(out.GetInlineBody()))
			r.arrived(n)
			err = checkOutcome(out, out.GetResponse(), n, size)
		}
		r.done(*started[result.Request], err)
		free <- result.Request
	}
}
