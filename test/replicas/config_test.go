package replicas

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health" // without it the client does not check the replicas' health
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
)

// The service configs that the docs recommend.
const (
	anyMethod  = "../../deploy/grpc/service-config.json"
	idempotent = "../../deploy/grpc/service-config-idempotent.json"
)

func read(t *testing.T, config string) string {
	t.Helper()
	text, err := os.ReadFile(config)
	must.Succeed(t, err)
	return string(text)
}

// TestConfigNames checks names, because gRPC ignores unknown methods and services.
func TestConfigNames(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range pb.FetchService_ServiceDesc.Methods {
		known[m.MethodName] = true
	}
	for _, m := range pb.FetchService_ServiceDesc.Streams {
		known[m.StreamName] = true
	}
	for _, file := range []string{anyMethod, idempotent} {
		var config struct {
			HealthCheckConfig struct{ ServiceName string }
			MethodConfig      []struct {
				Name    []struct{ Service, Method string }
				Timeout *string
			}
		}
		if err := json.Unmarshal([]byte(read(t, file)), &config); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		named := make(map[string]bool)
		for _, m := range config.MethodConfig {
			for _, name := range m.Name {
				if name.Service != pb.FetchService_ServiceDesc.ServiceName || !known[name.Method] {
					t.Errorf("%s names %s/%s, which is not in the contract", file, name.Service, name.Method)
				}
				named[name.Method] = true
			}
			if m.Timeout != nil {
				t.Errorf("%s has a timeout, but the caller sets the deadline", file)
			}
		}
		for _, method := range []string{"Fetch", "FetchUnary", "Explain"} {
			if !named[method] {
				t.Errorf("%s does not mention %s", file, method)
			}
		}
		if got := config.HealthCheckConfig.ServiceName; got != pb.FetchService_ServiceDesc.ServiceName {
			t.Errorf("%s checks the health of %q", file, got)
		}
	}
}

// TestConfigRetries calls a server that dies during the call or refuses it, and counts how
// often the call arrives.
func TestConfigRetries(t *testing.T) {
	for _, row := range []struct {
		name, config string
		server       *scripted
		call         func(context.Context, pb.FetchServiceClient) error
		code         codes.Code
		calls        int64
	}{
		{"a unary fetch is not repeated", anyMethod, dies(), unary, codes.Unavailable, 1},
		{"a fetch is not repeated", anyMethod, dies(), streamed, codes.Unavailable, 1},
		{"what fetches nothing is", anyMethod, dies(), explain, codes.Unavailable, 4},
		{"a unary fetch of an idempotent method is", idempotent, dies(), unary, codes.Unavailable, 4},
		{"a fetch of an idempotent method is", idempotent, dies(), streamed, codes.Unavailable, 4},
		{"a fetch that was refused is made", anyMethod, refusesOnce(), unary, codes.OK, 2},
		{"a stream that was refused is made", anyMethod, refusesOnce(), streamed, codes.OK, 2},
		{"a fetch of an idempotent method that was refused is made", idempotent, refusesOnce(), unary, codes.OK, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			client := row.server.serve(t, row.config)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := row.call(ctx, client)
			if got := row.server.calls.Load(); status.Code(err) != row.code || got != row.calls {
				t.Errorf("the call ended %v and arrived %d times, want %s and %d", err, got, row.code, row.calls)
			}
		})
	}
}

func unary(ctx context.Context, c pb.FetchServiceClient) error {
	_, err := c.FetchUnary(ctx, &pb.FetchRequest{})
	return err
}

func streamed(ctx context.Context, c pb.FetchServiceClient) error {
	stream, err := c.Fetch(ctx, &pb.FetchRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func explain(ctx context.Context, c pb.FetchServiceClient) error {
	_, err := c.Explain(ctx, &pb.ExplainRequest{})
	return err
}

// scripted is a service that handles call n with answer.
type scripted struct {
	pb.UnimplementedFetchServiceServer
	calls  atomic.Int64
	answer func(ctx context.Context, s *scripted, n int64) error
	status healthpb.HealthCheckResponse_ServingStatus // zero means SERVING

	mu    sync.Mutex
	conns []net.Conn
}

// dies returns a service that breaks its connections in every call, like a killed process.
func dies() *scripted {
	return &scripted{answer: func(ctx context.Context, s *scripted, _ int64) error {
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}}
}

// refusesOnce returns a service that refuses the first call as admission does.
func refusesOnce() *scripted {
	return &scripted{answer: func(ctx context.Context, _ *scripted, n int64) error {
		if n > 1 {
			return nil
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "10")) // fails only outside a call
		return status.Error(codes.ResourceExhausted, "too many fetches")
	}}
}

// TestConfigHealth checks that a replica that is not serving receives no call.
func TestConfigHealth(t *testing.T) {
	for _, config := range []string{anyMethod, idempotent} {
		s := refusesOnce()
		s.status = healthpb.HealthCheckResponse_NOT_SERVING
		client := s.serve(t, config)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := unary(ctx, client); status.Code(err) != codes.Unavailable || s.calls.Load() != 0 {
			t.Errorf("%s: a call ended %v and arrived %d times, want UNAVAILABLE and 0", config, err, s.calls.Load())
		}
	}
}

// serve runs the service until the test ends, and connects to it with the config.
func (s *scripted) serve(t *testing.T, config string) pb.FetchServiceClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := grpc.NewServer()
	pb.RegisterFetchServiceServer(server, s)
	states := health.NewServer()
	states.SetServingStatus(pb.FetchService_ServiceDesc.ServiceName, max(s.status, healthpb.HealthCheckResponse_SERVING))
	healthpb.RegisterHealthServer(server, states)
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(noting{l, s}) }) // ends with Stop
	t.Cleanup(func() { server.Stop(); group.Wait() })
	text := strings.ReplaceAll(read(t, config), `"0.1s"`, `"0.01s"`) // only shortens the waits
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithDefaultServiceConfig(text),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatalf("gRPC rejects the config: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewFetchServiceClient(conn)
}

// noting is a listener that records its connections, so that the service can break them.
type noting struct {
	net.Listener
	service *scripted
}

// Accept implements net.Listener.
func (n noting) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		n.service.mu.Lock()
		defer n.service.mu.Unlock()
		n.service.conns = append(n.service.conns, c)
	}
	return c, err
}

// FetchUnary implements fetchd.v1.FetchService.FetchUnary.
func (s *scripted) FetchUnary(ctx context.Context, _ *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	return &pb.FetchUnaryResponse{}, s.answer(ctx, s, s.calls.Add(1))
}

// Explain implements fetchd.v1.FetchService.Explain.
func (s *scripted) Explain(ctx context.Context, _ *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return &pb.ExplainResponse{}, s.answer(ctx, s, s.calls.Add(1))
}

// Fetch implements fetchd.v1.FetchService.Fetch.
func (s *scripted) Fetch(_ *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	if err := s.answer(stream.Context(), s, s.calls.Add(1)); err != nil {
		return err
	}
	return stream.Send(&pb.FetchResponse{})
}
