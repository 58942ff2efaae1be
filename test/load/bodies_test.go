//go:build linux

package load

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestBodies receives two large bodies and 200 small ones on one stream of FetchMany. In the middle it
// reads nothing for a while. FETCHD_LOAD=all has bodies of 1 GiB and stalls for 20 s.
func TestBodies(t *testing.T) {
	const (
		// Tasks with small bodies. The first ones are sent one at a time, spread over the large bodies,
		// and the others while nothing is read.
		small, burst = 200, 50
		limitRSS     = 100 // in MiB; the large bodies have 128 or 2,048
	)
	size, stall, limit := int64(64<<20), 5*time.Second, 55*time.Second
	if os.Getenv("FETCHD_LOAD") == "all" {
		size, stall, limit = 1<<30, 20*time.Second, 5*time.Minute
	}
	ctx := rig.Long(t, limit)
	p := start(ctx, t)
	stream, err := p.dial(1)[0].FetchMany(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := &bodies{process: p, stream: stream, tasks: make(map[string]*body)}
	urls := []string{p.origin.URL("http", fmt.Sprintf("/s/large0/200:size=%d,chunked", size)), p.origin.URL("https", fmt.Sprintf("/s/large1/200:size=%d", size))}
	idle := stall / 4 // of the origin, not of the caller
	for i, url := range urls {
		b.send(fmt.Sprintf("large%d", i), &pb.FetchRequest{Url: url, BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: new(pb.StreamDelivery)}, MaxSizeBytes: &size},
			TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: durationpb.New(limit), AttemptTimeout: durationpb.New(0), IdleTimeout: durationpb.New(idle)}})
	}
	began, stalled := time.Now(), false
	for next := 0; len(b.small)+b.large < small+len(urls); {
		b.receive()
		for next < small-burst && b.bytes >= int64(next)*2*size/(small-burst) {
			b.sendSmall(next)
			next++
		}
		if !stalled && b.bytes >= size {
			stalled = true
			b.stall(ctx, stall, func() {
				for i := range burst {
					b.sendSmall(small - burst + i)
				}
			})
		}
	}
	took := time.Since(began)
	must(t, stream.CloseSend())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the call ends with %v, want OK", err)
	}
	b.check(urls, p.origin.Body(smallSize), small-burst)
	var alongside rig.Times
	for _, s := range b.small {
		if !s.burst {
			alongside = append(alongside, s.took)
		}
	}
	t.Logf("2 bodies of %d MiB in %v, of which nothing was read for %v; %d small tasks next to them: %s; %s",
		size>>20, took.Round(time.Millisecond), b.stalledFor.Round(time.Millisecond), len(alongside), alongside, p.memory())
	rig.AtMost(t, "resident in MiB", p.peak(), limitRSS, limitRSS)
}

const smallSize = 1000

// bodies is a stream of FetchMany and what it has received.
type bodies struct {
	*process
	stream     pb.FetchService_FetchManyClient
	tasks      map[string]*body
	small      []*body // that have ended, in order
	large      int     // how many have ended
	bytes      int64   // of large bodies
	chunks     int     // of large bodies
	stalling   bool
	stalledFor time.Duration
}

// body is a task and what was received of it.
type body struct {
	sent    time.Time
	burst   bool      // sent while nothing was read
	hash    hash.Hash // of the chunks
	next    int64     // the offset of the next chunk
	chunks  int       // of large bodies that arrived before the outcome
	took    time.Duration
	outcome *pb.FetchOutcome
}

func (b *bodies) send(tag string, request *pb.FetchRequest) {
	b.Helper()
	b.tasks[tag] = &body{sent: time.Now(), burst: b.stalling, hash: sha256.New()}
	must(b, b.stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: tag, Request: request}}}))
}

func (b *bodies) sendSmall(i int) {
	b.Helper()
	b.send(fmt.Sprint(i), &pb.FetchRequest{Url: b.origin.URL("http", fmt.Sprintf("/s/small%d/200:size=%d", i, smallSize)),
		BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: new(pb.StreamDelivery)}}})
}

// receive receives a message.
func (b *bodies) receive() {
	b.Helper()
	m, err := b.stream.Recv()
	must(b, err)
	for _, r := range m.GetEvents() {
		task := b.tasks[r.GetTag()]
		switch e := r.GetEvent().GetEvent().(type) {
		case *pb.FetchEvent_BodyChunk:
			if e.BodyChunk.GetOffsetBytes() != task.next {
				b.Fatalf("%s: a chunk at offset %d, want %d", r.GetTag(), e.BodyChunk.GetOffsetBytes(), task.next)
			}
			_, _ = task.hash.Write(e.BodyChunk.GetData()) // never fails
			n := int64(len(e.BodyChunk.GetData()))
			task.next, b.bytes, b.chunks = task.next+n, b.bytes+n, b.chunks+1
		case *pb.FetchEvent_Outcome:
			task.outcome, task.took, task.chunks = e.Outcome, time.Since(task.sent), b.chunks
			if len(e.Outcome.GetInlineBody()) > 0 {
				b.small = append(b.small, task)
			} else {
				b.large++
			}
		}
	}
}

// stall reads nothing for a time. It calls send when the service waits for the caller, and serves other
// streams until the tasks that send sends have ended.
func (b *bodies) stall(ctx context.Context, span time.Duration, send func()) {
	b.Helper()
	began := time.Now()
	b.stalling = true
	b.quiet(ctx)
	before, ended := len(b.tasks), b.finished.Load()
	send()
	b.ended(ctx, ended+int64(len(b.tasks)-before))
	other := b.dial(1)[0]
	b.fetchSmall(ctx, other, 20)
	must(b, receiveBody(ctx, other, b.origin.URL("http", "/s/other/200:size=16000000")))
	b.quiet(ctx) // the outcomes wait
	wait.For(ctx, time.Until(began.Add(span)))
	b.stalling, b.stalledFor = false, time.Since(began)
	for _, task := range b.tasks {
		if task.outcome == nil && task.sent.Before(began) {
			task.sent = task.sent.Add(b.stalledFor) // the stall does not count
		}
	}
}

// quiet waits until the service has used no CPU time for a while.
func (b *bodies) quiet(ctx context.Context) {
	b.Helper()
	used, since := b.cpu(), time.Now()
	err := wait.Until(ctx, 50*time.Millisecond, func() bool {
		if now := b.cpu(); now > used+20*time.Millisecond {
			used, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
	must(b, err)
}

// receiveBody makes one fetch on a separate stream, and reads all of the body.
func receiveBody(ctx context.Context, client pb.FetchServiceClient, url string) error {
	stream, err := client.FetchMany(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: "other", Request: &pb.FetchRequest{Url: url,
		BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: new(pb.StreamDelivery)}}}}}}); err != nil {
		return err
	}
	for received := int64(0); ; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range m.GetEvents() {
			received += int64(len(r.GetEvent().GetBodyChunk().GetData()))
			if o := r.GetEvent().GetOutcome(); o != nil {
				if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || o.GetBodySummary().GetSizeBytes() != received {
					return fmt.Errorf("outcome %v after %d bytes", o, received)
				}
				return stream.CloseSend()
			}
		}
	}
}

// check checks what has arrived of every task. paced is the number of small tasks sent while the
// caller was reading.
func (b *bodies) check(urls []string, small []byte, paced int) {
	b.Helper()
	for i, url := range urls {
		task := b.tasks[fmt.Sprintf("large%d", i)]
		size, sum := b.fromOrigin(url)
		got, o := hex.EncodeToString(task.hash.Sum(nil)), task.outcome
		if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || o.GetAttemptCount() != 1 || task.next != size || got != sum || o.GetBodySummary().GetSha256() != sum {
			b.Errorf("%s: %s after %d attempts, %d bytes with SHA-256 %s, and %s in the outcome; want success after 1, %d bytes with %s: %v",
				url, o.GetKind(), o.GetAttemptCount(), task.next, got, o.GetBodySummary().GetSha256(), size, sum, o.GetError())
		}
	}
	alongside, chunks := 0, -1
	for _, task := range b.small {
		if o := task.outcome; o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || string(o.GetInlineBody()) != string(small) {
			b.Errorf("a small task ended as %s with %d bytes", o.GetKind(), len(o.GetInlineBody()))
		}
		switch {
		case !task.burst:
			if alongside++; task.chunks == b.chunks && alongside < paced/2 {
				b.Errorf("small task %d ended after the large ones, so they delay it", alongside)
			}
		case chunks < 0:
			chunks = task.chunks
		case task.chunks != chunks:
			b.Errorf("%d chunks came between small tasks that were ready, want none", task.chunks-chunks)
		}
	}
	if chunks < 0 || chunks == b.chunks {
		b.Errorf("the tasks sent while nothing was read ended after %d chunks of %d", chunks, b.chunks)
	}
}

// fromOrigin asks the origin for a body, and returns its size and SHA-256.
func (b *bodies) fromOrigin(url string) (int64, string) {
	b.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: b.origin.CA()}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	must(b, err)
	defer resp.Body.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, resp.Body)
	must(b, err)
	if resp.StatusCode != http.StatusOK {
		b.Errorf("%s: %s", url, resp.Status)
	}
	return n, hex.EncodeToString(sum.Sum(nil))
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
