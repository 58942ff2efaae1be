package server

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
)

// requestStream is a stream whose requests are received by [receiving].
type requestStream struct {
	grpc.ServerStream
	receiving *receiving
	only      bool // it has one request
}

// stream is a [grpc.StreamServerInterceptor].
func (r *receiving) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &requestStream{stream, r, !info.IsClientStream})
}

// RecvMsg implements grpc.ServerStream.
func (s *requestStream) RecvMsg(m any) error {
	return s.receiving.message(s.Context(), m, s.only)
}

// message receives a message as [grpc.ServerStream] does. A message that is too long is
// not read but marked as refused: see [transportStream]. only says that the call has no
// other message.
func (r *receiving) message(ctx context.Context, m any, only bool) error {
	c := callOf(ctx)
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	request, isProto := m.(proto.Message)
	if c == nil || !ok || !isProto {
		return status.Error(codes.Internal, "internal error")
	}
	if c.reserved != nil { // the message before this one has been handled
		c.reserved.Shrink(budget.Receiving, c.reserved.Held(budget.Receiving)-reservedBytes)
	}
	n, err := c.nextMessage(s)
	if errors.Is(err, io.EOF) && only {
		return status.Error(codes.Internal, "the call ended without a request")
	}
	if err != nil {
		return err
	}
	if n > maxRequestBytes || only && n > reservedBytes { // no valid request of one fetch is that long
		return refuseRequest(request, tooLong(request, n))
	}
	if only {
		if err := r.read(ctx, c, s, n); err != nil {
			c.early.Close()
			return err
		}
		defer c.early.Close()
	} else if more := int64(n - reservedBytes); more > 0 && c.reserved != nil && !c.reserved.Grow(budget.Receiving, more) {
		return r.noMemory(ctx, n)
	}
	data, err := s.Read(n)
	if err != nil {
		return receiveError(err)
	}
	defer data.Free()
	if err := newCodec().Unmarshal(data, m); err != nil {
		return status.Errorf(codes.Internal, "the message cannot be decoded: %v", err)
	}
	if !only {
		return nil
	}
	if _, err := c.nextMessage(s); !errors.Is(err, io.EOF) {
		return cmp.Or(err, status.Error(codes.Internal, "the call has a second request: send one"))
	}
	return nil
}

// nextMessage returns the length of the next message. The error is io.EOF if none follows.
func (c *call) nextMessage(s transportStream) (int, error) {
	switch err := s.ReadMessageHeader(c.head[:]); {
	case errors.Is(err, io.EOF):
		return 0, err
	case err != nil:
		return 0, receiveError(err)
	case c.head[0] != 0:
		return 0, status.Error(codes.Internal, "the message is marked as compressed, but the call has no grpc-encoding")
	}
	return int(binary.BigEndian.Uint32(c.head[1:])), nil
}

// receiveError returns the status of a call whose request did not arrive.
func receiveError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Errorf(codes.Internal, "the request is not complete: %v", err)
}

// tooLong returns the violation of a message of n bytes, which is not read. It names the
// field that makes a request so long: the body, or the tasks of FetchMany.
func tooLong(m proto.Message, n int) *errdetails.BadRequest_FieldViolation {
	wrong := &errdetails.BadRequest_FieldViolation{Field: "message", Reason: badrequest.TooLarge,
		Description: fmt.Sprintf("has %d bytes: send at most %d", n, reservedBytes)}
	body := fmt.Sprintf("is in a message of %d bytes: give at most %d", n, fetch.MaxRequestBodyBytes)
	switch m.(type) {
	case *pb.FetchRequest:
		wrong.Field, wrong.Description = "body", body
	case *pb.FetchUnaryRequest:
		wrong.Field, wrong.Description = "request.body", body
	case *pb.FetchManyRequest:
		wrong.Field = "tasks"
		wrong.Description = fmt.Sprintf("have %d bytes: send at most %d in a message, and the other tasks in more messages", n, maxRequestBytes)
	}
	return wrong
}
