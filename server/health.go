package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// endingHealth ends the watches when watching is done: a watch stays open until
// its caller leaves, and would hold up a graceful stop.
type endingHealth struct {
	*health.Server
	watching context.Context
}

// Watch implements grpc.health.v1.Health.Watch.
func (h endingHealth) Watch(in *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.watching, cancel)()
	return h.Server.Watch(in, endingWatch{stream, ctx})
}

type endingWatch struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (w endingWatch) Context() context.Context { return w.ctx }
