package judge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/stores"
)

// mutant is a server that hands calls on to a right one, and does one thing wrong.
type mutant struct {
	pb.UnimplementedFetchServiceServer
	inner pb.FetchServiceClient
	// ask changes what the right one is asked.
	ask func(*pb.FetchRequest)
	// alter returns what changes the events of one fetch.
	alter func() func(*pb.FetchEvent)
	// pack returns the messages of Fetch that are sent for one of the right server.
	pack func(*pb.FetchResponse) []*pb.FetchResponse
	// refuse changes the status of a call that the right one refuses.
	refuse func(error) error
	// explained changes what Explain answers.
	explained func(*pb.ExplainResponse)
}

// asked is the request as the right server gets it.
func (m *mutant) asked(req *pb.FetchRequest) *pb.FetchRequest {
	changed := proto.CloneOf(req)
	if m.ask != nil {
		m.ask(changed)
	}
	return changed
}

// ended returns the status of a call that the right server ended so.
func (m *mutant) ended(err error) error {
	if m.refuse != nil {
		return m.refuse(err)
	}
	return err
}

// restore makes the final URL the one that was asked, where the mutant changed it.
func restore(m *pb.FetchEvent, asked, changed string) {
	if r := m.GetResponseStarted(); r.GetUrl() == changed {
		r.Url = asked
	}
	if out := m.GetOutcome(); out.GetFinalUrl() == changed {
		out.FinalUrl = asked
	}
}

// Fetch implements pb.FetchServiceServer.
func (m *mutant) Fetch(req *pb.FetchRequest, to grpc.ServerStreamingServer[pb.FetchResponse]) error {
	changed := m.asked(req)
	from, err := m.inner.Fetch(to.Context(), changed)
	if err != nil {
		return err
	}
	alter := func(*pb.FetchEvent) {}
	if m.alter != nil {
		alter = m.alter()
	}
	for {
		msg, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return m.ended(err)
		}
		for _, event := range msg.GetEvents() {
			alter(event)
			restore(event, req.GetUrl(), changed.GetUrl())
		}
		messages := []*pb.FetchResponse{msg}
		if m.pack != nil {
			messages = m.pack(msg)
		}
		for _, msg := range messages {
			if err := to.Send(msg); err != nil {
				return err
			}
		}
	}
}

// FetchUnary implements pb.FetchServiceServer.
func (m *mutant) FetchUnary(ctx context.Context, req *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	changed := m.asked(req)
	resp, err := m.inner.FetchUnary(ctx, changed)
	if err != nil {
		return nil, m.ended(err)
	}
	alter := func(*pb.FetchEvent) {}
	if m.alter != nil {
		alter = m.alter()
	}
	for _, attempt := range resp.GetAttempts() {
		alter(&pb.FetchEvent{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: attempt}})
	}
	outcome := &pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: resp.GetOutcome()}}
	alter(outcome)
	restore(outcome, req.GetUrl(), changed.GetUrl())
	return resp, nil
}

// FetchMany implements pb.FetchServiceServer.
func (m *mutant) FetchMany(to grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]) error {
	from, err := m.inner.FetchMany(to.Context())
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = from.CloseSend() }()
		for {
			in, err := to.Recv()
			if err != nil {
				return
			}
			for _, task := range in.GetTasks() {
				task.Request = m.asked(task.GetRequest())
			}
			if from.Send(in) != nil {
				return
			}
		}
	}()
	for {
		out, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return m.ended(err)
		}
		for _, r := range out.GetEvents() {
			if m.alter != nil {
				m.alter()(r.GetEvent())
			}
		}
		if err := to.Send(out); err != nil {
			return err
		}
	}
}

// Explain implements pb.FetchServiceServer.
func (m *mutant) Explain(ctx context.Context, req *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	resp, err := m.inner.Explain(ctx, req)
	if err == nil && m.explained != nil {
		m.explained(resp)
	}
	return resp, err
}

// making returns the server to be judged, which is given a right one.
type making func(right pb.FetchServiceClient) pb.FetchServiceServer

// judgeAll runs the whole kit against each server, all at once: they wait more than
// they work.
func judgeAll(t *testing.T, scenarios []*kit.Scenario, vectors []conformance.Vector, servers []making) [][]kit.Result {
	t.Helper()
	results := make([][]kit.Result, len(servers))
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(2) // more at once starve the scenarios about time, with -race above all
	for i, make := range servers {
		group.Go(func() error {
			var err error
			results[i], err = judgeServer(ctx, scenarios, vectors, make)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return results
}

// judgeServer runs the whole kit against one server and its own origin.
func judgeServer(ctx context.Context, scenarios []*kit.Scenario, vectors []conformance.Vector, make making) ([]kit.Result, error) {
	v, err := judge.Open("", "", scenarios)
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }() // always nil
	dir, err := os.MkdirTemp("", "judge-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	file, err := writeStores(dir)
	if err != nil {
		return nil, err
	}
	bodies, err := stores.ReadFile(file, new(stores.Set))
	if err != nil {
		return nil, err
	}
	defer func() { _ = bodies.Close(context.Background()) }()
	right, stop, err := startRight(v, judge.Listeners(scenarios), bodies)
	if err != nil {
		return nil, err
	}
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20)) // the right one judges sizes
	pb.RegisterFetchServiceServer(srv, make(right))
	served := goServe(srv, l)
	defer func() { srv.Stop(); <-served }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	suite := &kit.Suite{Service: pb.NewFetchServiceClient(conn), Origin: v, Jobs: 16}
	results, err := suite.Vectors(ctx, vectors)
	if err != nil {
		return nil, err
	}
	wire, err := suite.Scenarios(ctx, scenarios)
	return append(results, wire...), err
}

// startRight starts a fetchd that may reach the venue.
func startRight(v *judge.Venue, listeners []string, bodies *stores.Set) (pb.FetchServiceClient, func(), error) {
	ports, err := v.Ports(listeners)
	if err != nil {
		return nil, nil, err
	}
	srv, err := server.New(server.Config{
		Stores: bodies,
		Fetch: fetch.Config{RootCAs: v.CA(), UserAgent: "fetchd/test",
			Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports}},
		AuthProviders: map[string]server.AuthProvider{"conformance-stalled": {Provider: stalled{}}}})
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	stop := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = conn.Close()
		_ = srv.Shutdown(ctx)
		<-served
	}
	return pb.NewFetchServiceClient(conn), stop, err
}

// stalled is an auth provider whose refresh only ends with its context.
type stalled struct{}

func (stalled) Covers(*url.URL) bool { return true }

func (stalled) Field(context.Context) (name, value string, err error) {
	return "Authorization", "Bearer stale", nil
}

func (stalled) Refresh(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// goServe serves until srv is stopped; then the channel is closed.
func goServe(srv *grpc.Server, l net.Listener) <-chan struct{} {
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // calls tell of what they could not do
	}()
	return served
}

func everything(t *testing.T) ([]*kit.Scenario, []conformance.Vector) {
	t.Helper()
	scenarios, vectors, err := judge.Select(nil)
	if err != nil {
		t.Fatal(err)
	}
	return scenarios, vectors
}

// invented answers without asking anybody.
type invented struct {
	pb.UnimplementedFetchServiceServer
}

func inventedOutcome(req *pb.FetchRequest) *pb.FetchOutcome {
	return &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, DecisionRule: "H0", AttemptCount: 1, FinalUrl: req.GetUrl(),
		Response: &pb.HttpResponse{StatusCode: 200}}
}

func (invented) Fetch(req *pb.FetchRequest, to grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return to.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{
		{Sequence: 1, Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: 1}}},
		{Sequence: 2, Event: &pb.FetchEvent_Outcome{Outcome: inventedOutcome(req)}},
	}})
}

func (invented) FetchUnary(_ context.Context, req *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	return &pb.FetchUnaryResponse{Outcome: inventedOutcome(req), Attempts: []*pb.AttemptFinished{{Attempt: 1}}}, nil
}

func (invented) Explain(context.Context, *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return new(pb.ExplainResponse), nil
}

// inverted fetches, and tells the opposite of what came of it.
func inverted(right pb.FetchServiceClient) pb.FetchServiceServer {
	return &mutant{
		inner: right,
		alter: func() func(*pb.FetchEvent) {
			return func(m *pb.FetchEvent) {
				if out := m.GetOutcome(); out != nil {
					out.Kind = opposite(out.GetKind())
				}
			}
		},
		refuse:    func(error) error { return status.Error(codes.ResourceExhausted, "try again") },
		explained: func(r *pb.ExplainResponse) { r.Kind = opposite(r.GetKind()).Enum() },
	}
}

func opposite(kind pb.OutcomeKind) pb.OutcomeKind {
	if kind == pb.OutcomeKind_OUTCOME_KIND_FAILED {
		return pb.OutcomeKind_OUTCOME_KIND_SUCCESS
	}
	return pb.OutcomeKind_OUTCOME_KIND_FAILED
}

// failing has no answer.
type failing struct {
	pb.UnimplementedFetchServiceServer
}

func (failing) Fetch(*pb.FetchRequest, grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return status.Error(codes.Internal, "no answer")
}

// A server that is wrong in everything holds nothing.
func TestBrokenServerHoldsNothing(t *testing.T) {
	// Alone: it would starve the tests that have a deadline to meet.
	scenarios, vectors := everything(t)
	names := []string{"inverted", "invented", "failing"}
	all := judgeAll(t, scenarios, vectors, []making{
		inverted,
		func(pb.FetchServiceClient) pb.FetchServiceServer { return invented{} },
		func(pb.FetchServiceClient) pb.FetchServiceServer { return failing{} },
	})
	for i, results := range all {
		if len(results) != len(scenarios)+len(vectors) {
			t.Errorf("%s: %d results, want %d", names[i], len(results), len(scenarios)+len(vectors))
		}
		for _, r := range results {
			if r.Verdict != kit.Failed {
				t.Errorf("%s: %s: %s, want failed", names[i], r.Name, r.Verdict)
			}
		}
	}
}

// named are the scenarios that pass the filter.
func named(scenarios []*kit.Scenario, filter func(*kit.Scenario) bool) []string {
	var names []string
	for _, s := range scenarios {
		if filter(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// hasWait tells the scenarios in which one is waited for, and from where.
func hasWait(source string) func(*kit.Scenario) bool {
	return func(s *kit.Scenario) bool {
		return slices.ContainsFunc(s.Want.Waits, func(w conformance.Wait) bool { return w.Source == source && w.Delay > 0 })
	}
}

// fails reports whether a scenario must fail.
func fails(s *kit.Scenario) bool { return s.Want.Outcome.Kind == "failed" }

var (
	retryAfter = regexp.MustCompile(`(retry-after[a-z-]*|header=RateLimit)=[^,/]*`)
	foreign    = regexp.MustCompile(`version=(?:0\.9|2\.0|3\.0|9\.9),?`)
	notFound   = regexp.MustCompile(`^(https?://[^/]+/s/[^/]+)/404`)
)

// retry is the request's retry policy.
func retry(req *pb.FetchRequest) *pb.RetryPolicy {
	if req.GetRetryPolicy() == nil {
		req.RetryPolicy = new(pb.RetryPolicy)
	}
	return req.GetRetryPolicy()
}

func redirects(req *pb.FetchRequest) *pb.RedirectPolicy {
	if req.GetRedirectPolicy() == nil {
		req.RedirectPolicy = new(pb.RedirectPolicy)
	}
	return req.GetRedirectPolicy()
}

// insteadOfAuto replaces the delivery auto.
func insteadOfAuto(replace func(p *pb.BodyPolicy)) func(*pb.FetchRequest) {
	return func(r *pb.FetchRequest) {
		if p := r.GetBodyPolicy(); p.GetAuto() != nil {
			replace(p)
		}
	}
}

// onRetry returns an alteration of the decisions for another attempt.
func onRetry(change func(*pb.Retry)) func() func(*pb.FetchEvent) {
	return func() func(*pb.FetchEvent) {
		return func(m *pb.FetchEvent) {
			if retry := m.GetAttemptFinished().GetRetryDecision().GetRetry(); retry != nil {
				change(retry)
			}
		}
	}
}

// alone puts each event into a separate message.
func alone(m *pb.FetchResponse) []*pb.FetchResponse {
	var messages []*pb.FetchResponse
	for _, event := range m.GetEvents() {
		messages = append(messages, &pb.FetchResponse{Events: []*pb.FetchEvent{event}})
	}
	return messages
}

// resumesWrongly spoils the first byte of a body that is continued.
func resumesWrongly() func(*pb.FetchEvent) {
	continued := false
	return func(m *pb.FetchEvent) {
		if r := m.GetResponseStarted(); r != nil {
			continued = r.GetAttempt() > 1 && r.GetBodyOffsetBytes() > 0
		}
		if c := m.GetBodyChunk(); c != nil && continued {
			c.Data[0], continued = c.Data[0]+1, false
		}
	}
}

// showsTheRest has a fetch that succeeded show the response of its last attempt.
func showsTheRest() func(*pb.FetchEvent) {
	var last *pb.HttpResponse
	return func(m *pb.FetchEvent) {
		if f := m.GetAttemptFinished(); f != nil {
			last = f.GetResponse()
		}
		if out := m.GetOutcome(); out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS && last != nil {
			out.Response, out.ResponseAttempt = last, out.GetAttemptCount()
		}
	}
}

// onSuccess returns an alteration of the outcomes of fetches that succeed.
func onSuccess(change func(*pb.FetchOutcome)) func() func(*pb.FetchEvent) {
	return func() func(*pb.FetchEvent) {
		return func(m *pb.FetchEvent) {
			if out := m.GetOutcome(); out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				change(out)
			}
		}
	}
}

// One thing done wrong is caught by the scenarios about it, and by no other.
func TestMutantsAreCaught(t *testing.T) {
	// Alone: it would starve the tests that have a deadline to meet.
	scenarios, _ := everything(t)
	// The outcome before a deadline comes within its reserve, for which a machine may
	// be too slow.
	scenarios = slices.DeleteFunc(scenarios, func(s *kit.Scenario) bool { return s.Deadline != "" })
	only := func(names ...string) []string {
		return named(scenarios, func(s *kit.Scenario) bool { return slices.Contains(names, s.Name) })
	}
	continued := []string{"body continued", "body continued twice", "body continued after a failure", "resume point continued", "auto, more than the hold-back"}
	rows := []struct {
		name   string
		mutant mutant
		caught []string
	}{
		{"nothing wrong", mutant{}, nil},
		{"nothing wrong, each event in a separate message", mutant{pack: alone}, nil},
		{"sends empty messages", mutant{pack: func(m *pb.FetchResponse) []*pb.FetchResponse { return []*pb.FetchResponse{{}, m} }},
			named(scenarios, func(s *kit.Scenario) bool { return s.Call == "" && s.Want.Refused == "" })},
		{"does not say where a retry starts", mutant{alter: onRetry(func(r *pb.Retry) { r.Start = 0 })},
			named(scenarios, func(s *kit.Scenario) bool { return len(s.Want.Waits) > 0 })},
		{"retries 404", mutant{ask: func(r *pb.FetchRequest) { r.Url = notFound.ReplaceAllString(r.GetUrl(), "$1/503") }},
			only("404", "404 with seconds", "unary, 404")},
		{"ignores Retry-After", mutant{ask: func(r *pb.FetchRequest) { r.Url = retryAfter.ReplaceAllString(r.GetUrl(), "size=500") }},
			named(scenarios, func(s *kit.Scenario) bool {
				return fails(s) && s.Want.Outcome.Failure.RetryAfter != nil || slices.ContainsFunc(s.Want.Waits, func(w conformance.Wait) bool { return w.Source == "retry_after" })
			})},
		{"does not wait", mutant{ask: func(r *pb.FetchRequest) {
			retry(r).BaseDelay, retry(r).MaxDelay = new(durationpb.Duration), new(durationpb.Duration)
		}},
			named(scenarios, hasWait("backoff"))},
		{"repeats every POST", mutant{ask: func(r *pb.FetchRequest) {
			if r.GetMethod() == "POST" || r.GetMethod() == "PATCH" {
				retry(r).AllowNonIdempotent = true
				if retry(r).GetIdempotencyKey() == "" {
					retry(r).IdempotencyKey = "order-17"
				}
			}
		}}, only("POST without a key", "POST with a key but no leave", "POST that was reset", "POST to a closed port", "POST redirected to a closed port", "PATCH without a key", "POST, 303, then 503", "POST, 303, then 503, then more redirects", "421 to a POST")},
		{"follows too far", mutant{ask: func(r *pb.FetchRequest) { redirects(r).MaxRedirects = proto.Int32(20) }},
			only("6 redirects", "no redirect allowed", "POST, 303, then 503, then more redirects")},
		{"forwards credentials", mutant{ask: func(r *pb.FetchRequest) { redirects(r).ForwardCredentials = true }}, only("credentials dropped")},
		{"resumes wrongly", mutant{alter: resumesWrongly}, only(continued...)},
		{"shows the rest for the whole", mutant{alter: showsTheRest}, only(append(slices.Clone(continued), "body stored in two attempts")...)},
		{"streams small bodies", mutant{ask: insteadOfAuto(func(p *pb.BodyPolicy) { p.Delivery = &pb.BodyPolicy_Stream{Stream: p.GetAuto()} })}, only("auto, a small body", "many, auto, a small body")},
		{"streams no body", mutant{ask: insteadOfAuto(func(p *pb.BodyPolicy) { p.Delivery = &pb.BodyPolicy_Inline{Inline: new(pb.InlineDelivery)} })}, only("auto, more than the hold-back", "auto, started over with a small body")},
		{"keeps cookies", mutant{ask: func(r *pb.FetchRequest) { r.CookieMode = pb.CookieMode_COOKIE_MODE_WITHIN_FETCH }}, only("no cookies")},
		{"takes any digest", mutant{ask: func(r *pb.FetchRequest) { r.Integrity = nil }}, named(scenarios, func(s *kit.Scenario) bool { return fails(s) && s.Fetch.Integrity != nil })},
		{"cuts long bodies", mutant{ask: func(r *pb.FetchRequest) { r.Body = r.GetBody()[:min(len(r.GetBody()), 1<<20)] }},
			named(scenarios, func(s *kit.Scenario) bool { return s.BodyBytes > 1<<20 })},
		{"has clients try again what is too large", mutant{refuse: func(error) error { return status.Error(codes.ResourceExhausted, "too large") }},
			named(scenarios, func(s *kit.Scenario) bool { return s.Want.Refused != "" })},
		{"takes a part for the whole", mutant{alter: onSuccess(func(out *pb.FetchOutcome) { out.GetBodySummary().PartialContent = false })}, named(scenarios, func(s *kit.Scenario) bool { return s.Want.Outcome.PartialContent && !fails(s) })},
		{"calls every 206 a part", mutant{alter: onSuccess(func(out *pb.FetchOutcome) {
			out.GetBodySummary().PartialContent = out.GetResponse().GetStatusCode() == 206
		})}, only("part that is everything", "part that is everything stored", "resume point", "resume point continued")},
		{"stores parts", mutant{ask: func(r *pb.FetchRequest) {
			if r.GetBodyPolicy().GetStore() != nil {
				r.Url = strings.Replace(r.GetUrl(), "/206:", "/200:", 1)
			}
		}}, only("part not stored", "part without Content-Range not stored", "part that is everything stored")},
		{"believes that every length is known", mutant{alter: onSuccess(func(out *pb.FetchOutcome) { out.GetBodySummary().LengthKnown = true })},
			named(scenarios, func(s *kit.Scenario) bool { return s.Want.LengthUnknown })},
		{"takes any version of HTTP", mutant{ask: func(r *pb.FetchRequest) { r.Url = foreign.ReplaceAllString(r.GetUrl(), "") }},
			named(scenarios, func(s *kit.Scenario) bool { return fails(s) && s.Want.Outcome.Failure.Reason == "http_version" })},
		{"checks no content", mutant{ask: func(r *pb.FetchRequest) { r.ContentPolicy = nil }}, named(scenarios, func(s *kit.Scenario) bool { return fails(s) && s.Fetch.Content != nil })},
	}
	servers := make([]making, len(rows))
	for i := range rows {
		servers[i] = func(right pb.FetchServiceClient) pb.FetchServiceServer {
			rows[i].mutant.inner = right
			return &rows[i].mutant
		}
	}
	for i, results := range judgeAll(t, scenarios, nil, servers) {
		if len(rows[i].caught) == 0 && !strings.HasPrefix(rows[i].name, "nothing wrong") {
			t.Errorf("%s: no scenario is about it", rows[i].name)
		}
		var got []string
		for _, r := range results {
			if r.Verdict == kit.Failed {
				got = append(got, r.Name)
				if !slices.Contains(rows[i].caught, r.Name) {
					t.Logf("%s: %s: %+v", rows[i].name, r.Name, r)
				}
			}
		}
		if diff := cmp.Diff(rows[i].caught, got); diff != "" {
			t.Errorf("%s: the scenarios that fail differ from the row of the mutant (-want +got). If you added one that must fail here, add its name to the row.\n%s", rows[i].name, diff)
		}
	}
}

// TestExplainWithoutReasons checks that a server whose Explain gives no reasons is caught by the
// vectors that name one, and by no others.
func TestExplainWithoutReasons(t *testing.T) {
	_, vectors := everything(t)
	var want, got []string
	for _, v := range vectors {
		if v.Verdict.Failure != nil && v.Verdict.Failure.Reason != "" {
			want = append(want, v.Name)
		}
	}
	if len(want) < 10 {
		t.Fatalf("%d vectors name a reason, want at least 10", len(want))
	}
	results := judgeAll(t, nil, vectors, []making{func(right pb.FetchServiceClient) pb.FetchServiceServer {
		return &mutant{inner: right, explained: func(r *pb.ExplainResponse) {
			if r.GetError() != nil {
				r.Error.Reason = ""
			}
		}}
	}})
	for _, r := range results[0] {
		if r.Verdict == kit.Failed {
			got = append(got, r.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("vectors that fail (-want +got)\n%s", diff)
	}
}

// writeStores writes a stores file for a service in this process, with the store that scenarios name: a new directory
// in dir. It returns the path of the file.
func writeStores(dir string) (string, error) {
	at := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "bodies"))}
	file := filepath.Join(dir, "stores.yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, "stores: {conformance-bodies: {url: %q}}\n", at.String()), 0o600)
}
