package main

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"

	pb "fetchd/gen/fetchd/v1"
)

// TestCompressedRequests checks that the command links gzip but accepts no call with it.
func TestCompressedRequests(t *testing.T) {
	if encoding.GetCompressor("gzip") == nil {
		t.Fatal("the command no longer links gzip: name another coding that it links")
	}
	s := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := s.dial(nil, grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	in := &pb.FetchRequest{Url: "http://10.0.0.1/"}
	for method, err := range map[string]func() error{
		"Explain":    func() error { return call(ctx, c) },
		"FetchUnary": func() error { _, err := c.FetchUnary(ctx, in); return err },
		"Fetch": func() error {
			stream, err := c.Fetch(ctx, in)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"FetchMany": func() error {
			stream, err := c.FetchMany(ctx)
			if err == nil {
				_ = stream.Send(&pb.FetchManyRequest{}) // Recv returns the error
				_, err = stream.Recv()
			}
			return err
		},
	} {
		wantStatus(t, method, err(), codes.Unimplemented, "gzip")
	}
	wantStatus(t, "without", call(ctx, s.dial(nil)), codes.OK, "")
}
