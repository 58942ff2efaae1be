package api

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/frontier/v1"
)

// method is a method of the contract. send is called once, or several times for a stream.
type method struct {
	name    string
	path    string // of the HTTP API
	stream  bool
	request func() proto.Message
	call    func(s *service, ctx context.Context, in proto.Message, send func(proto.Message) error) error
}

// unary returns a method with one answer.
func unary[Q any, P interface {
	*Q
	proto.Message
}, R proto.Message](name, path string, call func(*service, context.Context, P) (R, error)) method {
	return method{name: name, path: path, request: func() proto.Message { return P(new(Q)) },
		call: func(s *service, ctx context.Context, in proto.Message, send func(proto.Message) error) error {
			request, _ := in.(P)
			ctx, cancel := context.WithTimeout(ctx, maxWait+storeTime)
			defer cancel()
			out, err := call(s, ctx, request)
			if err != nil {
				return err
			}
			return send(out)
		}}
}

// methods are the methods of the contract.
var methods = []method{
	unary("Put", "/v1/put", (*service).put),
	unary("Claim", "/v1/claim", (*service).claim),
	unary("Extend", "/v1/extend", (*service).extend),
	unary("Record", "/v1/record", (*service).record),
	unary("Release", "/v1/release", (*service).release),
	unary("Block", "/v1/block", (*service).block),
	unary("SetDelay", "/v1/set-delay", (*service).setDelay),
	unary("Pause", "/v1/pause", (*service).pause),
	unary("Resume", "/v1/resume", (*service).resume),
	unary("Why", "/v1/why", (*service).why),
	unary("Stats", "/v1/stats", (*service).readStats),
	{name: "Watch", path: "/v1/watch", stream: true, request: func() proto.Message { return new(pb.WatchRequest) }, call: (*service).watch},
}

// run calls a method.
func (s *service) run(ctx context.Context, m method, in proto.Message, send func(proto.Message) error) error {
	return s.statusOf(ctx, m.call(s, ctx, in, send))
}
