package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/frontier/api"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/test/must"
	testrig "fetchd/test/rig"
	"fetchd/test/wait"
)

// TestExpensiveURLs checks that a call is rejected whose URLs take too long to read, and that as many
// long ones are not.
func TestExpensiveURLs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	put := func(format string) error {
		in := new(pb.PutRequest)
		for i := range 1000 {
			in.Entries = append(in.Entries, &pb.Entry{Url: fmt.Sprintf(format, i)})
		}
		_, err := r.Put(t.Context(), in)
		return err
	}
	if err := put("http://a.test/%d/" + strings.Repeat("ü", 1900)); err != nil {
		t.Errorf("long paths: %v", err)
	}
	if err := put("http://ü%d.test/"); err != nil {
		t.Errorf("hosts outside ASCII: %v", err)
	}
	if err := put("http://%d." + strings.Repeat("ü", 500) + "/"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("long hosts outside ASCII: %v, want INVALID_ARGUMENT", err)
	}
}

// TestManyWaits sends 10,000 claims that wait. Those over the limit are refused, and the others end
// with their calls.
func TestManyWaits(t *testing.T) {
	r := newRig(t, nil)
	r.put("http://a.test/1", "http://a.test/2")
	r.claim(1, new(pb.ClaimRequest)) // the frontier is not done
	ctx, cancel := context.WithCancel(t.Context())
	const claims = 10_000
	var refused, ended atomic.Int64
	all := make(chan struct{})
	var clients []pb.FrontierServiceClient // a connection has 256 calls in flight
	for range 8 {
		clients = append(clients, pb.NewFrontierServiceClient(testrig.Dial(t, r.grpc)))
	}
	for i := range claims {
		go func() {
			_, err := clients[i%len(clients)].Claim(ctx, &pb.ClaimRequest{MaxWait: durationpb.New(time.Minute)})
			if status.Code(err) == codes.ResourceExhausted {
				refused.Add(1)
			}
			if ended.Add(1) == claims {
				close(all)
			}
		}()
	}
	// Those of a connection with 256 waiting claims are not sent.
	for refused.Load() < claims*7/10 {
		select {
		case <-all:
			t.Fatalf("all claims ended, %d were refused", refused.Load())
		case <-time.After(10 * time.Millisecond):
		}
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap) // of the clients too
	if heap.HeapAlloc > 400<<20 {
		t.Errorf("%d MiB are in use while claims wait", heap.HeapAlloc>>20)
	}
	if _, err := r.Stats(t.Context(), new(pb.StatsRequest)); err != nil && status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Stats meanwhile: %v", err)
	}
	cancel()
	<-all
	waiting, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var err error
	if ended := wait.Until(waiting, 10*time.Millisecond, func() bool { // the server sees the end of a call later than its client
		_, err = r.Claim(t.Context(), new(pb.ClaimRequest))
		return status.Code(err) != codes.ResourceExhausted
	}); ended != nil || err != nil {
		t.Errorf("a claim afterwards: %v, %v", err, ended)
	}
}

// TestLongClaims claims URLs that are longer than the answer that a client accepts. It gets the others
// later, and no claim is lost.
func TestLongClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	metadata := `{"x":"` + strings.Repeat("x", 4000) + `"}`
	const hosts = 400 // of 12 KiB each
	for chunk := range hosts / 100 {
		var in pb.PutRequest
		for i := range 100 {
			in.Entries = append(in.Entries, &pb.Entry{Url: fmt.Sprintf("http://h%d.test/%s", chunk*100+i, strings.Repeat("x", 8000)), Metadata: metadata})
		}
		if _, err := r.Put(t.Context(), &in); err != nil {
			t.Fatal(err)
		}
	}
	claimed := map[string]bool{}
	for range 2 {
		out, err := r.Claim(t.Context(), &pb.ClaimRequest{Limit: hosts})
		must.Succeed(t, err)
		for _, c := range out.GetClaims() {
			if claimed[c.GetUrl()] || c.GetCrashCount() > 0 {
				t.Errorf("%.20s was claimed before, or lost %d times", c.GetUrl(), c.GetCrashCount())
			}
			claimed[c.GetUrl()] = true
		}
	}
	if len(claimed) != hosts {
		t.Errorf("%d URLs were claimed, want %d", len(claimed), hosts)
	}
}

// leaving is a store whose caller goes away during a claim.
type leaving struct {
	store.Store
	leave context.CancelFunc
	left  chan struct{} // the server knows that the caller has gone
	ended chan struct{}
}

func (s leaving) Claim(ctx context.Context, params store.ClaimParams) ([]store.Claim, error) {
	defer close(s.ended)
	claims, err := s.Store.Claim(ctx, params)
	s.leave()
	<-s.left
	if ctx.Err() != nil { // a database that has done the work may report the end of the call instead
		return nil, ctx.Err()
	}
	return claims, err
}

// TestInterruptedClaim checks that URLs are free if their caller goes away while they are claimed.
func TestInterruptedClaim(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	left, ended := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(c *api.Config) { c.Store = leaving{c.Store, leave, left, ended} })
	r.put("http://a.test/")
	if _, err := r.Claim(ctx, new(pb.ClaimRequest)); status.Code(err) != codes.Canceled {
		t.Errorf("the claim: %v", err)
	}
	// The server reads this call after the end of the other, which came over the same connection.
	if _, err := r.Stats(t.Context(), new(pb.StatsRequest)); err != nil {
		t.Error(err)
	}
	close(left)
	<-ended
	patience, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := wait.Until(patience, time.Millisecond, func() bool {
		n, err := r.store.Counts(t.Context())
		return err != nil || n.Pending == 1
	}); err != nil {
		t.Errorf("the URL stays claimed: %v", err)
	}
}

// TestManyWatches opens more streams than a caller may have, and reads none.
func TestManyWatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := 0
	for range 40 {
		stream, err := r.Watch(ctx, new(pb.WatchRequest))
		must.Succeed(t, err)
		if _, err := stream.Recv(); status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	if refused != 40-32 {
		t.Errorf("%d watches were refused, want 8", refused)
	}
}

// bytesCodec sends a request as it is.
type bytesCodec struct{ encoding.Codec }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	if sent, ok := v.(*[]byte); ok {
		return *sent, nil
	}
	return nil, errors.ErrUnsupported
}

func (bytesCodec) Unmarshal([]byte, any) error { return nil }

func (bytesCodec) Name() string { return "proto" }

// TestRawRequests sends bytes that a client of the contract cannot send.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, tt := range []struct {
		name string
		sent []byte
		code codes.Code
		want string
	}{
		{"no message", []byte{0xff, 0xff}, codes.InvalidArgument, "is not a PutRequest"},
		{"invalid UTF-8", []byte("\x0a\x03\x0a\x01\xff"), codes.InvalidArgument, "UTF-8"},
		{"a million empty entries", []byte(strings.Repeat("\x0a\x00", 1_000_000)), codes.InvalidArgument, "the request has 1000000 fields"},
		{"a request of 5 MiB", make([]byte, 5<<20), codes.ResourceExhausted, "larger than max"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			var out []byte
			err := r.conn.Invoke(t.Context(), pb.FrontierService_Put_FullMethodName, &tt.sent, &out, grpc.ForceCodec(bytesCodec{}))
			if status.Code(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("%v, want %v with %q", err, tt.code, tt.want)
			}
		})
	}
}

// TestSlowHead sends the head of a request byte by byte. The server ends the connection.
func TestSlowHead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.web)
	must.Succeed(t, err)
	defer c.Close()
	if _, err := c.Write([]byte("POST /v1/claim HTTP/1.1\r\nHost: ")); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
		t.Error("the server answered half a request")
	}
}

// TestUnreadWatch opens a stream and does not read it. Its outcomes are longer than all buffers.
func TestUnreadWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *api.Config) { c.Stall = 100 * time.Millisecond })
	var entries []store.Entry // not put over the API, whose callers may be too slow for this Stall
	for i := range 800 {
		entries = append(entries, store.Entry{URL: fmt.Sprintf("http://h%d.test/", i)})
	}
	if _, err := r.store.Put(t.Context(), entries, store.Limits{}); err != nil {
		t.Fatal(err)
	}
	claims, err := r.store.Claim(t.Context(), store.ClaimParams{Limit: len(entries)})
	if err != nil || len(claims) != len(entries) {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	var fetches []store.Fetch
	for _, c := range claims {
		fetches = append(fetches, store.Fetch{ID: c.ID, FetchedParams: store.FetchedParams{Token: c.Token}, Status: store.Dead, LastError: strings.Repeat("x", 4096)})
	}
	if results, err := r.store.RecordFetch(t.Context(), fetches); errors.Join(append(results, err)...) != nil {
		t.Fatal(results, err)
	}
	ended := func() bool { // the server counts the calls that it has ended
		families, err := r.metrics.Gather()
		must.Succeed(t, err)
		return strings.Contains(fmt.Sprint(families), `value:"Aborted"`)
	}
	stream, err := r.Watch(t.Context(), &pb.WatchRequest{After: "0"})
	must.Succeed(t, err)
	for !ended() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-stream.Context().Done():
			t.Fatal("the test ended")
		}
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if code := status.Code(err); code != codes.Aborted && code != codes.Canceled {
		t.Errorf("the stream ended with %v", err)
	}
}
