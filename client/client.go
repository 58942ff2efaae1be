package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
)

// Client calls one service. It is safe for concurrent use.
type Client struct {
	rpc pb.FetchServiceClient
}

// New returns a client that calls over conn, which stays the caller's to close.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{pb.NewFetchServiceClient(conn)}
}

// Option changes one call of [Client.Get] or [Client.Do].
type Option func(*body)

// OnEvent has f told of each event as it arrives, pieces of the body and
// heartbeats excepted, the outcome included. f is called by Do until it returns,
// and then by reads of the body. It must not read the body itself.
func OnEvent(f func(*pb.FetchResponse)) Option {
	return func(b *body) { b.event = f }
}

// Get fetches url with the service's defaults. It is [Client.Do] with a request
// that says nothing else.
func (c *Client) Get(ctx context.Context, url string, options ...Option) (*Response, error) {
	return c.Do(ctx, &pb.FetchRequest{Url: url}, options...)
}

// Do carries out a fetch. It returns when the first bytes of a body are there, or
// when the fetch has ended without any. Then it has seen every attempt that could
// be taken back.
//
// Without an error the response's body is not nil and must be closed. An outcome
// REDIRECT or NOT_MODIFIED is no error. A fetch that failed is an [*Error], from
// here or from a read of the body; any other error is as the package says.
//
// A request whose event_level is unset is sent with ALL, for only then the final
// URL is known before the body. Nothing else is changed, and request is not kept.
// ctx holds for reading the body as well.
func (c *Client) Do(ctx context.Context, request *pb.FetchRequest, options ...Option) (*Response, error) {
	if request.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_UNSPECIFIED {
		own := new(pb.FetchRequest)
		proto.Merge(own, request)
		request = own
		request.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.Fetch(ctx, request)
	if err != nil {
		cancel()
		return nil, statusError(ctx, err)
	}
	b := &body{ctx: ctx, stream: stream, cancel: cancel, event: func(*pb.FetchResponse) {},
		all: request.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_ALL}
	for _, o := range options {
		o(b)
	}
	return b.open()
}

// ErrContract says that what answers does not keep the contract: a message after
// the outcome, none at the end, bytes that are missing.
var ErrContract = errors.New("the service broke its contract")

// statusError adds to a status the error of the context, where that is its cause.
func statusError(ctx context.Context, err error) error {
	code := status.Code(err)
	if cause := context.Cause(ctx); cause != nil && (code == codes.Canceled || code == codes.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
