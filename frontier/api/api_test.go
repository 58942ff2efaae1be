package api_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/frontier/api"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server on a new database.
type rig struct {
	*testing.T
	pb.FrontierServiceClient
	store store.Store
	conn  *grpc.ClientConn
	web   string // address of the HTTP port
	http  *http.Client

	server  *api.Server
	metrics *prometheus.Registry
	grpc    string
}

// in returns r for a subtest.
func (r *rig) in(t *testing.T) *rig {
	c := *r
	c.T = t
	return &c
}

func newRig(t *testing.T, change func(*api.Config)) *rig {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "frontier.db"), store.Config{Delay: time.Millisecond})
	must.Succeed(t, err)
	registry := prometheus.NewRegistry()
	cfg := api.Config{Store: s, UserAgent: "test", Metrics: registry}
	if change != nil {
		change(&cfg)
	}
	server, err := api.New(cfg)
	must.Succeed(t, err)
	r := &rig{T: t, store: s, server: server, metrics: registry, http: &http.Client{Transport: new(http.Transport)}}
	ended := make(chan error, 2)
	listen := func(serve func(net.Listener) error) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		go func() { ended <- serve(l) }()
		return l.Addr().String()
	}
	r.grpc, r.web = listen(server.Serve), listen(server.ServeWeb)
	if r.conn, err = grpc.NewClient("passthrough:///"+r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	r.FrontierServiceClient = pb.NewFrontierServiceClient(r.conn)
	t.Cleanup(func() {
		r.http.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-ended, <-ended, r.conn.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) put(urls ...string) *pb.PutResponse {
	r.Helper()
	in := new(pb.PutRequest)
	for _, u := range urls {
		in.Entries = append(in.Entries, &pb.Entry{Url: u})
	}
	out, err := r.Put(r.Context(), in)
	must.Succeed(r, err)
	return out
}

// claim fails the test unless a claim returns n URLs.
func (r *rig) claim(n int, in *pb.ClaimRequest) []*pb.Claim {
	r.Helper()
	out, err := r.Claim(r.Context(), in)
	if err != nil || len(out.GetClaims()) != n {
		r.Fatalf("Claim = %v, %v, want %d URLs", out, err, n)
	}
	return out.GetClaims()
}

func (r *rig) post(path, text string) (int, string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+r.web+path, strings.NewReader(text))
	must.Succeed(r, err)
	request.Header.Set("Content-Type", "application/json")
	return r.do(request)
}

func (r *rig) get(path string) (int, string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.web+path, http.NoBody)
	must.Succeed(r, err)
	return r.do(request)
}

func (r *rig) do(request *http.Request) (int, string) {
	r.Helper()
	response, err := r.http.Do(request)
	must.Succeed(r, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(r, err)
	return response.StatusCode, string(text)
}

// TestCrawl takes a URL through its life.
func TestCrawl(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	out, err := r.Put(t.Context(), &pb.PutRequest{Entries: []*pb.Entry{
		{Url: "http://A.test/x", Priority: 5, Depth: 2, Metadata: `{"a":1}`}, {Url: "http://a.test/low"}, {Url: "nope"}, {Url: "http://a.test/x", Depth: 3},
		{Url: "http://b.test/", Priority: 500}, {Url: "http://b.test/", Metadata: `[1]`}, {Url: "http://b.test/", Depth: -1}, {Url: "http://b.test/", Kind: 7},
		{Url: "http://b.test/map", Kind: pb.Kind_KIND_SITEMAP, Metadata: `{"Frontier":{}}`},
	}})
	if err != nil || out.GetAddedCount() != 2 || out.GetKnownCount() != 1 {
		t.Fatalf("Put = %v, %v", out, err)
	}
	var bad []string
	for _, b := range out.GetBadEntries() {
		bad = append(bad, fmt.Sprintf("%d %s", b.GetIndex(), b.GetField()))
	}
	if diff := cmp.Diff([]string{"2 url", "4 priority", "5 metadata", "6 depth", "7 kind", "8 metadata"}, bad); diff != "" {
		t.Errorf("bad entries (-want +got):\n%s", diff)
	}
	c := r.claim(1, &pb.ClaimRequest{Limit: 10, Worker: "w"})[0]
	if c.GetUrl() != "http://a.test/x" || c.GetHost() != "a.test" || c.GetDepth() != 2 || c.GetMetadata() != `{"a":1}` || c.GetKind() != pb.Kind_KIND_PAGE {
		t.Errorf("Claim = %v", c)
	}
	why, err := r.Why(t.Context(), &pb.WhyRequest{Url: "http://A.test/x"})
	if err != nil || why.GetStatus() != pb.Status_STATUS_FETCHING || why.GetReasonCode() != "fetching" || len(why.GetReasons()) != 1 || why.GetPriority() != 5 {
		t.Errorf("Why = %v, %v", why, err)
	}
}

// TestRecord checks that an outcome is recorded once, and only with the token of the claim.
func TestRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.put("http://a.test/1", "http://a.test/2")
	c := r.claim(1, new(pb.ClaimRequest))[0]
	if held, err := r.Extend(t.Context(), &pb.ExtendRequest{Leases: []*pb.Lease{c.GetLease(), {Id: c.GetLease().GetId(), Token: 1 << 40}}}); err != nil || len(held.GetHeldLeases()) != 1 {
		t.Errorf("Extend = %v, %v, want the lease that is held", held, err)
	}
	outcome := &pb.Outcome{Lease: c.GetLease(), Status: pb.Status_STATUS_FETCHED, AttemptCount: 1, StatusCode: 200, BodyBytes: 7, FetchDuration: durationpb.New(time.Second)}
	stolen := &pb.Outcome{Lease: &pb.Lease{Id: c.GetLease().GetId(), Token: c.GetLease().GetToken() + 1}, Status: pb.Status_STATUS_DEAD}
	invalid := &pb.Outcome{Lease: &pb.Lease{Id: 2, Token: 1}, Status: pb.Status_STATUS_FETCHED, FinalUrl: "nope"}
	if results, err := r.Record(t.Context(), &pb.RecordRequest{Outcomes: []*pb.Outcome{stolen}}); err != nil || results.GetResults()[0] != pb.RecordResult_RECORD_RESULT_STALE {
		t.Errorf("Record with the token of another claim = %v, %v", results, err)
	}
	for i, want := range []pb.RecordResult{pb.RecordResult_RECORD_RESULT_RECORDED, pb.RecordResult_RECORD_RESULT_STALE} {
		results, err := r.Record(t.Context(), &pb.RecordRequest{Outcomes: []*pb.Outcome{outcome, invalid}})
		if got := results.GetResults(); err != nil || len(got) != 2 || got[0] != want || got[1] != pb.RecordResult_RECORD_RESULT_INVALID {
			t.Errorf("Record, time %d: %v, %v, want %v, invalid", i+1, results, err, want)
		}
	}
	stats, err := r.Stats(t.Context(), new(pb.StatsRequest))
	if err != nil || stats.GetFetchedCount() != 1 || stats.GetPendingCount() != 1 || stats.GetLastMinuteOutcomeCount() != 1 {
		t.Errorf("Stats = %v, %v", stats, err)
	}
}

// TestRetryDelay checks when a URL that failed may be claimed again.
func TestRetryDelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.put("http://a.test/")
	failed := func(c *pb.Claim, delay *durationpb.Duration) {
		t.Helper()
		_, err := r.Record(t.Context(), &pb.RecordRequest{Outcomes: []*pb.Outcome{{Lease: c.GetLease(), Status: pb.Status_STATUS_FAILED, RetryDelay: delay}}})
		must.Succeed(t, err)
	}
	wait := &pb.ClaimRequest{MaxWait: durationpb.New(time.Minute)}
	failed(r.claim(1, wait)[0], nil)
	again := r.claim(1, wait)[0] // at once
	if again.GetFailureCount() != 1 {
		t.Errorf("the second claim is %v, want one failure", again)
	}
	failed(again, durationpb.New(time.Hour))
	why, err := r.Why(t.Context(), &pb.WhyRequest{Url: "http://a.test/"})
	must.Succeed(t, err)
	if left := time.Until(why.GetReadyTime().AsTime()).Round(time.Minute); left != time.Hour {
		t.Errorf("the URL waits for %v, want 1h", left)
	}
}

// TestPoliteness checks that callers change what a claim returns.
func TestPoliteness(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.put("http://a.test/1", "http://a.test/2")
	ok := func(_ any, err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	ok(r.Pause(t.Context(), &pb.PauseRequest{Host: "A.test"}))
	r.claim(0, &pb.ClaimRequest{Limit: 5})
	ok(r.Resume(t.Context(), &pb.ResumeRequest{Host: "a.test"}))
	ok(r.Pause(t.Context(), new(pb.PauseRequest)))
	r.claim(0, &pb.ClaimRequest{Limit: 5})
	ok(r.Resume(t.Context(), new(pb.ResumeRequest)))
	one := r.claim(1, &pb.ClaimRequest{Limit: 5})[0]
	r.claim(0, &pb.ClaimRequest{Limit: 5}) // one fetch of a host at a time
	released, err := r.Release(t.Context(), &pb.ReleaseRequest{Leases: []*pb.Lease{one.GetLease()}})
	if err != nil || len(released.GetReleasedLeases()) != 1 {
		t.Errorf("Release = %v, %v", released, err)
	}
	ok(r.SetDelay(t.Context(), &pb.SetDelayRequest{Host: "a.test", Delay: durationpb.New(time.Hour), MaxInFlight: 2}))
	r.claim(2, &pb.ClaimRequest{Limit: 5})
	ok(r.Block(t.Context(), &pb.BlockRequest{Host: "a.test", RetryAfter: durationpb.New(time.Hour)}))
	stats, err := r.Stats(t.Context(), new(pb.StatsRequest))
	if err != nil || stats.GetBlockedHostCount() != 1 || len(stats.GetClosedHosts()) != 1 {
		t.Errorf("Stats = %v, %v, want a blocked host", stats, err)
	}
}

// TestWait checks that a claim waits for a URL, but not if nothing is left to do.
func TestWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	wait := &pb.ClaimRequest{MaxWait: durationpb.New(time.Minute)}
	if out, err := r.Claim(t.Context(), wait); err != nil || !out.GetDone() {
		t.Errorf("Claim of an empty frontier = %v, %v, want done", out, err)
	}
	r.put("http://a.test/1", "http://a.test/2")
	held := r.claim(1, &pb.ClaimRequest{})[0]
	got := make(chan error, 1)
	go func() {
		out, err := r.Claim(t.Context(), wait)
		if err == nil && len(out.GetClaims()) != 1 {
			err = fmt.Errorf("%v", out)
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("a claim ended while the host was in use: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := r.Release(t.Context(), &pb.ReleaseRequest{Leases: []*pb.Lease{held.GetLease()}}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the claim that waited: %v", err)
	}
}

func TestSitemaps(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	in := &pb.PutRequest{Entries: []*pb.Entry{{Url: "http://a.test/sitemap.xml", Kind: pb.Kind_KIND_SITEMAP, Priority: 100, Metadata: `{"a":1}`}, {Url: "http://a.test/page"}}}
	if _, err := r.Put(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	page := r.claim(1, &pb.ClaimRequest{Limit: 2})[0]
	if page.GetKind() != pb.Kind_KIND_PAGE {
		t.Errorf("a claim without sitemaps returned %v", page)
	}
	if _, err := r.Record(t.Context(), &pb.RecordRequest{Outcomes: []*pb.Outcome{{Lease: page.GetLease(), Status: pb.Status_STATUS_FETCHED}}}); err != nil {
		t.Fatal(err)
	}
	sitemap := r.claim(1, &pb.ClaimRequest{Limit: 2, IncludeSitemaps: true, MaxWait: durationpb.New(time.Minute)})[0]
	if sitemap.GetKind() != pb.Kind_KIND_SITEMAP {
		t.Errorf("a claim with sitemaps returned %v", sitemap)
	}
}

// TestWatch reads outcomes from the first on, in gRPC and as lines of JSON.
func TestWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	in := &pb.PutRequest{Entries: []*pb.Entry{{Url: "http://a.test/", Metadata: `{"a":1}`}}}
	if _, err := r.Put(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := r.Watch(ctx, new(pb.WatchRequest))
	must.Succeed(t, err)
	if first, err := stream.Recv(); err != nil || len(first.GetOutcomes()) != 0 {
		t.Fatalf("the first response is %v, %v, want an empty one", first, err)
	}
	c := r.claim(1, new(pb.ClaimRequest))[0]
	if _, err := r.Record(t.Context(), &pb.RecordRequest{Outcomes: []*pb.Outcome{{Lease: c.GetLease(), Status: pb.Status_STATUS_DEAD, ErrorClass: "gone"}}}); err != nil {
		t.Fatal(err)
	}
	next, err := stream.Recv()
	if err != nil || len(next.GetOutcomes()) != 1 || next.GetOutcomes()[0].GetErrorClass() != "gone" || next.GetOutcomes()[0].GetMetadata() != `{"a":1}` {
		t.Errorf("Watch = %v, %v", next, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.web+"/v1/watch?after=0", nil)
	must.Succeed(t, err)
	response, err := r.http.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	line := make([]byte, 200)
	if _, err := io.ReadFull(response.Body, line); err != nil || !strings.HasPrefix(string(line), `{"id":"1","url":"http://a.test/"`) || response.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("the line is %q, %v, %v", line, err, response.Header)
	}
}

// TestRefused sends what is not valid, as POST, or as GET if a row has no text. Every fault has its field and the remedy.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	long := strings.Repeat("x", 5000)
	many := strings.TrimSuffix(strings.Repeat(`{},`, 1001), ",")
	for _, tt := range []struct {
		name, path, text string
		status           int
		want             string
	}{
		{"an unknown field", "/v1/claim", `{"wurker":"a"}`, 400, `did you mean \"worker\"`},
		{"two faults", "/v1/claim", `{"limit":-1,"max_wait":"7200s"}`, 400, `limit is -1: give 0 to 1000; max_wait is 2h0m0s: give 0s to 1m0s`},
		{"a long worker", "/v1/claim", `{"worker":"` + long + `"}`, 413, `worker has 5000 bytes`},
		{"no entries", "/v1/put", `{}`, 400, `entries has 0 entries: give 1 to 1000`},
		{"too many entries", "/v1/put", `{"entries":[` + many + `]}`, 400, `entries has 1001 entries`},
		{"many empty entries", "/v1/put", `{"entries":[` + strings.Repeat(`{},`, 50_000) + `{}]}`, 400, `list entries: send at most`},
		{"a long request", "/v1/put", `{"entries":[{"url":"` + strings.Repeat("x", 5<<20) + `"}]}`, 413, `request has`},
		{"a lease of nobody", "/v1/record", `{"outcomes":[{"status":"STATUS_FETCHED"}]}`, 400, `outcomes[0].lease is 0, 0`},
		{"a status that is none", "/v1/record", `{"outcomes":[{"lease":{"id":1,"token":1},"status":"STATUS_PENDING"}]}`, 400, `give STATUS_FETCHED, STATUS_FAILED or STATUS_DEAD`},
		{"negative numbers", "/v1/record", `{"outcomes":[{"lease":{"id":1,"token":1},"status":3,"attempt_count":-1,"body_bytes":-1,"fetch_duration":"-1s","status_code":-2}]}`, 400, `outcomes[0].body_bytes is -1`},
		{"a host that is none", "/v1/block", `{"host":"a.test/path"}`, 400, `host is \"a.test/path\"`},
		{"a host with NUL", "/v1/pause", `{"host":"a\u0000b"}`, 400, `is not a host`},
		{"a URL that is none", "/v1/why", `{"url":"nope"}`, 400, `url is not a URL`},
		{"an unknown URL", "/v1/why", `{"url":"http://a.test/"}`, 404, `does not have this URL`},
		{"invalid UTF-8", "/v1/claim", "{\"worker\":\"\xff\"}", 400, `UTF-8`},
		{"no JSON", "/v1/claim", `limit=1`, 400, `is not a ClaimRequest in JSON: syntax error (line 1:1): invalid value limit: send an object"`},
		{"an empty request", "/v1/watch?x=1", ` `, 400, `is not a WatchRequest`},
		{"an unknown parameter", "/v1/stats?max_host=3", ``, 400, `did you mean \"max_hosts\"`},
		{"a parameter that is no number", "/v1/stats?max_hosts=many", ``, 400, `max_hosts is \"many\": give a whole number`},
		{"a parameter without a value", "/v1/stats?max_hosts=", ``, 400, `max_hosts is \"\": give a whole number`},
		{"a parameter out of range", "/v1/watch?after=-2", ``, 400, `after this is not a cursor: give that`},
		{"a parameter twice", "/v1/stats?max_hosts=1&max_hosts=2", ``, 400, `has \"max_hosts\" twice`},
		{"a URL of the query that is none", "/v1/why?url=%ff", ``, 400, `url is not a URL`},
		{"a query that is not valid", "/v1/stats?max_hosts=%zz", ``, 400, `the query is not valid`},
		{"an unknown path", "/v1/nope", `{}`, 404, `POST /v1/put`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			code, text := 0, ""
			if tt.text == "" {
				code, text = r.get(tt.path)
			} else {
				code, text = r.post(tt.path, tt.text)
			}
			if code != tt.status || !strings.Contains(text, tt.want) {
				t.Errorf("%d %s, want %d with %q", code, text, tt.status, tt.want)
			}
		})
	}
}

func TestCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *api.Config) {
		c.Authenticate = func(token string, _ *tls.ConnectionState) (string, error) {
			if token != "secret" {
				return "", errors.New("give a token")
			}
			return "crawler", nil
		}
	})
	if _, err := r.Claim(t.Context(), new(pb.ClaimRequest)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a claim without a token: %v", err)
	}
	if code, _ := r.post("/v1/claim", `{}`); code != http.StatusUnauthorized {
		t.Errorf("a claim without a token over HTTP: %d", code)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
	if _, err := r.Put(ctx, &pb.PutRequest{Entries: []*pb.Entry{{Url: "http://a.test/"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(ctx, new(pb.ClaimRequest)); err != nil {
		t.Fatal(err)
	}
	if why, err := r.Why(ctx, &pb.WhyRequest{Url: "http://a.test/"}); err != nil || why.GetWorker() != "crawler" {
		t.Errorf("Why = %v, %v, want the name of the caller as the worker", why, err)
	}
	_, text := r.get("/metrics")
	for _, want := range []string{`{code="Unauthenticated",method="Claim"} 2`, `{code="OK",method="Claim"} 1`, `{code="OK",method="Put"} 1`} {
		if !strings.Contains(text, "frontier_api_call_duration_seconds_count"+want+"\n") {
			t.Errorf("the metrics do not have %s:\n%s", want, text)
		}
	}
}

// TestForeignPage sends what a browser sends for a page of another origin.
func TestForeignPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, tt := range []struct {
		name, host, origin string
		want               int
	}{
		{"a program", "", "", 200},
		{"a page of this service", "", "http://" + r.web, 200},
		{"a page of another origin", "", "http://evil.test", 403},
		{"a name that was bound to loopback", "evil.test", "", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.web+"/v1/pause", strings.NewReader(`{"host":"a.test"}`))
			must.Succeed(t, err)
			request.Header.Set("Content-Type", "application/json")
			if tt.origin != "" {
				request.Header.Set("Origin", tt.origin)
			}
			request.Host = tt.host
			if code, text := r.do(request); code != tt.want {
				t.Errorf("%d %s, want %d", code, text, tt.want)
			}
		})
	}
}
