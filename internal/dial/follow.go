package dial

import (
	"errors"
	"fmt"
	"io"

	pb "fetchd/gen/fetchd/v1"

	"google.golang.org/grpc"
)

// ErrContract reports that the service broke the contract.
var ErrContract = errors.New("the service broke its contract")

// Follow reads the stream of a fetch to its end, calls each with every message, and returns
// the outcome. It passes on the message with the outcome when the stream has ended, because
// only then it is known to be the last. Errors are gRPC statuses, those of each, and
// ErrContract.
func Follow(stream grpc.ServerStreamingClient[pb.FetchResponse], each func(*pb.FetchResponse) error) (*pb.FetchOutcome, error) {
	var last *pb.FetchResponse
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && last == nil:
			return nil, fmt.Errorf("%w: the stream ended without an outcome", ErrContract)
		case errors.Is(err, io.EOF):
			return last.GetOutcome(), each(last)
		case err != nil:
			return nil, err
		case last != nil:
			return nil, fmt.Errorf("%w: a message came after the outcome", ErrContract)
		case m.GetOutcome() != nil:
			last = m
		default:
			if err := each(m); err != nil {
				return nil, err
			}
		}
	}
}
