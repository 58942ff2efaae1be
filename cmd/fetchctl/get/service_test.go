package get

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/cli"
	"fetchd/internal/policies"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/clitest"
)

// brokenService answers as no fetchd should.
type brokenService struct {
	pb.UnimplementedFetchServiceServer
	fetch func(grpc.ServerStreamingServer[pb.FetchResponse]) error
}

func (s brokenService) Fetch(_ *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return s.fetch(stream)
}

func startBroken(t *testing.T, fetch func(grpc.ServerStreamingServer[pb.FetchResponse]) error) string {
	t.Helper()
	return fetchdtest.Start(t, fetchdtest.Options{Fake: brokenService{fetch: fetch}}).Addr
}

// sends returns a Fetch that sends the events, each in a separate message, and ends with the error.
func sends(end error, events ...*pb.FetchEvent) func(grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return func(stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
		for _, e := range events {
			if err := stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{e}}); err != nil {
				return err
			}
		}
		return end
	}
}

func outcomeEvent(o *pb.FetchOutcome) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: o}}
}

func chunkEvent(offset int64, data string) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{OffsetBytes: offset, Data: []byte(data)}}}
}

func startedEvent(offset int64) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{
		Response: &pb.HttpResponse{StatusCode: 200}, BodyOffsetBytes: offset}}}
}

// TestGetDropsBytes: what follows a lower offset replaces what came after it.
func TestGetDropsBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		offset int64
		want   string
	}{
		{"from the beginning", 0, "xy"},
		{"from the middle", 2, "abxy"},
		{"from the end", 4, "abcdxy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			addr := startBroken(t, sends(nil, startedEvent(0), chunkEvent(0, "abcd"), startedEvent(tt.offset), chunkEvent(tt.offset, "xy"),
				outcomeEvent(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Response: &pb.HttpResponse{StatusCode: 200}, BodySummary: &pb.BodySummary{SizeBytes: int64(len(tt.want))}})))
			file := filepath.Join(t.TempDir(), "file")
			if got := fetchctl.Run(t, "get", "--server", addr, "-o", file, "http://origin.test/"); got.Code != cli.ExitOK {
				t.Errorf("-o FILE: exit status %d\n%s", got.Code, got.Err)
			}
			clitest.File(t, file, []byte(tt.want))
			got := fetchctl.Run(t, "get", "--server", addr, "http://origin.test/")
			switch {
			case tt.offset == 4:
				if got.Code != cli.ExitOK || got.Out != tt.want {
					t.Errorf("standard output: exit status %d, %q, want %q", got.Code, got.Out, tt.want)
				}
			case got.Code != cli.ExitService || !strings.Contains(got.Err, "after 4 bytes"):
				t.Errorf("standard output: exit status %d, %q; want %d, for it cannot be taken back", got.Code, got.Err, cli.ExitService)
			}
		})
	}
}

// What the service does wrong is never taken for a fetch.
func TestServiceFails(t *testing.T) {
	t.Parallel()
	done := outcomeEvent(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Response: &pb.HttpResponse{StatusCode: 200}})
	short := outcomeEvent(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Response: &pb.HttpResponse{StatusCode: 200}, BodySummary: &pb.BodySummary{SizeBytes: 7}})
	failedWith := func(e *pb.FetchError) *pb.FetchEvent {
		return outcomeEvent(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, Error: e})
	}
	revoked := sends(badrequest.WithDetails(status.New(codes.Aborted, "no longer allowed"), &errdetails.ErrorInfo{Reason: "CALLER_REVOKED"}))
	for _, tt := range []struct {
		name  string
		fetch func(grpc.ServerStreamingServer[pb.FetchResponse]) error
		code  int
		told  string
	}{
		{"no outcome", sends(nil), cli.ExitService, "ended without an outcome"},
		{"two outcomes", sends(nil, done, done), cli.ExitService, "after the outcome"},
		{"a body without a head", sends(nil, chunkEvent(0, "x"), done), cli.ExitService, "before its head"},
		{"a hole in the body", sends(nil, startedEvent(0), chunkEvent(5, "x"), done), cli.ExitService, "continues at byte 5, want 0"},
		{"a body that begins after a hole", sends(nil, startedEvent(5), chunkEvent(5, "x"), done), cli.ExitService, "a body begins at byte 5, want byte 0 at most"},
		{"a body that begins before its first byte", sends(nil, startedEvent(-1), chunkEvent(-1, "x"), done), cli.ExitService, "a body begins at byte -1"},
		{"a body cut short", sends(nil, short), cli.ExitService, "the body has 7 bytes, but 0 came"},
		{"unavailable in the middle", sends(status.Error(codes.Unavailable, "drain\x1b[2J"), startedEvent(0), chunkEvent(0, "x")), cli.ExitService, `drain\x1b[2J`},
		{"over a limit", sends(status.Error(codes.ResourceExhausted, "full")), cli.ExitService, "Try again a little later"},
		{"revoked", revoked, cli.ExitService, "Ask its operator for a new one"},
		{"stalled", sends(status.Error(codes.Aborted, "stalled")), cli.ExitService, "with -o"},
		{"not allowed", sends(status.Error(codes.PermissionDenied, "no")), cli.ExitService, "does not allow this"},
		{"no token", sends(status.Error(codes.Unauthenticated, "no")), cli.ExitService, "--token-file FILE"},
		{"an unknown authority", sends(status.Error(codes.Unavailable, "tls: failed to verify certificate: x509: certificate signed by unknown authority")), cli.ExitService, "--tls-ca-file FILE"},
		{"too late", sends(status.Error(codes.DeadlineExceeded, "late")), cli.ExitService, "longer --timeout"},
		{"another service", sends(status.Error(codes.Unimplemented, "what")), cli.ExitService, "the gRPC port of fetchd"},
		{"internal", sends(status.Error(codes.Internal, "oops")), cli.ExitService, "The log of the service says more"},
		{"refused without details", sends(status.Error(codes.InvalidArgument, "url\x07 is bad")), cli.ExitUsage, `url\a is bad`},
		{"unknown failure, retryable", sends(nil, failedWith(&pb.FetchError{FailureType: 99, ErrorClass: 99, Retryable: true})), cli.ExitTransient, "unknown_99"},
		{"unknown failure, final", sends(nil, failedWith(&pb.FetchError{FailureType: 99})), cli.ExitPermanent, "unknown_99, not retryable"},
		{"no head in time", sends(nil, failedWith(&pb.FetchError{Message: "header_timeout 15s, the default of profile standard"})), cli.ExitPermanent, "(a longer --timeout raises it)"},
		{"unknown event", sends(nil, new(pb.FetchEvent), done), cli.ExitOK, "success"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "file")
			got := fetchctl.Run(t, "get", "--server", startBroken(t, tt.fetch), "-o", file, "http://origin.test/")
			if got.Code != tt.code || !strings.Contains(got.Err, tt.told) {
				t.Errorf("exit status %d, %q; want %d and %q", got.Code, got.Err, tt.code, tt.told)
			}
			if tt.code != cli.ExitOK {
				clitest.Only(t, dir)
			}
		})
	}
}

// TestGetEgressRoute checks that --egress-route names a route of the service at --server.
func TestGetEgressRoute(t *testing.T) {
	t.Parallel()
	set, faults := policies.Parse([]byte("routes: {r: {}}\npolicies: {p: {egress: {routes: [r], allow-addresses: [127.0.0.1], ports: [9]}}}\ndefault: p\n"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	addr := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.Egress, c.Policies = fetch.Egress{Unrestricted: true}, set
	}}).Addr
	for _, row := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"one that is permitted", []string{"--server", addr, "--egress-route", "r"}, cli.ExitTransient, "connect_refused"},
		{"one that is not", []string{"--server", addr, "--egress-route", "s"}, cli.ExitService, "egress_route is \"s\": the policy permits r"},
		{"no service", []string{"--egress-route", "r"}, cli.ExitUsage, "--egress-route: names a route of a service: give --server too"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := fetchctl.Run(t, append([]string{"get", "--max-retries=0", "http://127.0.0.1:9/"}, row.args...)...)
			if got.Code != row.code || !strings.Contains(got.Err, row.err) {
				t.Errorf("exit status %d, want %d and %q\n%s", got.Code, row.code, row.err, got.Err)
			}
		})
	}
}
