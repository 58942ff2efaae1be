//go:build linux

package stores

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/rig/linktest"
)

// The sizes of the bodies, for an upload with three parts and for one request. They are the
// largest ones, so that no socket buffers a whole part.
const (
	threeParts = 15 << 20
	onePart    = 5 << 20
)

// maxTries is how often a store makes a request at most.
const maxTries = 3

func ms(name string, n int) map[string]int { return map[string]int{name: n} }

// kinds are the faults that every request may meet. For those in the body of the request it
// must have one.
var kinds = []kind{
	{name: "500", status: 500, code: "InternalError"},
	{name: "500, unread", status: 500, code: "InternalError", unread: true},
	{name: "503", status: 503, code: "SlowDown"},
	// S3 may begin to answer before it has completed an upload, and report the failure in the body.
	{name: "200 with an error", status: 200, code: "InternalError"},
	{name: "200 with an error, but done", status: 200, code: "InternalError", done: true},
	{name: "500, but done", status: 500, code: "InternalError", done: true},
	{name: "reset in the request", toxic: linktest.Toxic{Kind: "reset_peer", Stream: linktest.Up, Attributes: ms("timeout", 0)}, inBody: true},
	{name: "reset in the answer", toxic: linktest.Toxic{Kind: "reset_peer", Stream: linktest.Down, Attributes: ms("timeout", 0)}},
	{name: "reset in the answer, but done", toxic: linktest.Toxic{Kind: "reset_peer", Stream: linktest.Down, Attributes: ms("timeout", 0)}, done: true},
	{name: "closed in the request", toxic: linktest.Toxic{Kind: "limit_data", Stream: linktest.Up, Attributes: ms("bytes", 100_000)}, inBody: true},
	{name: "closed after a while in the request", toxic: linktest.Toxic{Kind: "timeout", Stream: linktest.Up, Attributes: ms("timeout", 200)}, inBody: true},
	{name: "closed in the answer", toxic: linktest.Toxic{Kind: "limit_data", Stream: linktest.Down, Attributes: ms("bytes", 20)}},
	{name: "closed in the answer, but done", toxic: linktest.Toxic{Kind: "limit_data", Stream: linktest.Down, Attributes: ms("bytes", 20)}, done: true},
	{name: "stall in the request", toxic: linktest.Toxic{Kind: "timeout", Stream: linktest.Up, Attributes: ms("timeout", 0)}, inBody: true},
	{name: "bandwidth 0 in the request", toxic: linktest.Toxic{Kind: "bandwidth", Stream: linktest.Up, Attributes: ms("rate", 0)}, inBody: true},
	{name: "stall in the answer, but done", toxic: linktest.Toxic{Kind: "timeout", Stream: linktest.Down, Attributes: ms("timeout", 0)}, done: true},
	{name: "bandwidth 0 in the answer", toxic: linktest.Toxic{Kind: "bandwidth", Stream: linktest.Down, Attributes: ms("rate", 0)}},
}

// faultRow is a body and the fault of one of its requests.
type faultRow struct {
	fault
	size    int64
	success bool
	orphan  bool // an upload is left that its store cannot know
	*lane
}

// faultRows returns every fault at every request. In the gate no request stalls every time, because
// that takes minutes.
func faultRows() []*faultRow {
	var rows []*faultRow
	for _, at := range []string{putObject, createUpload, uploadPart + "1", uploadPart + "2", uploadPart + "3", completeUpload} {
		part := strings.HasPrefix(at, uploadPart)
		last := at == putObject || at == completeUpload
		for _, k := range kinds {
			if k.inBody && at != putObject && !part || k.status == 200 && at != completeUpload {
				continue
			}
			for _, once := range []bool{true, false} {
				if !once && k.stalls() && !all() {
					continue
				}
				r := &faultRow{fault: fault{kind: k, at: at, once: once}, size: threeParts}
				if at == putObject {
					r.size = onePart
				}
				// An object whose answer is always lost is found afterwards.
				r.success = once || k.done && last
				r.orphan = k.done && at == createUpload
				rows = append(rows, r)
			}
		}
	}
	return rows
}

func (r *faultRow) name() string {
	often := "always"
	if r.once {
		often = "once"
	}
	return strings.ReplaceAll(fmt.Sprintf("%s/%s, %s", r.at, r.kind.name, often), " ", "_")
}

// TestFaults commits a fault at each request of an upload, once or every time, and checks what is
// in the bucket afterwards.
func TestFaults(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 10*time.Minute)
	o, s := newSite(t), newServer(ctx, t)
	f := newFront(t, s)
	rows := faultRows()
	entries := make(map[string]entry)
	for i, r := range rows {
		r.lane = f.lane(t, fmt.Sprintf("row-%d", i))
		r.link.Prepare(r.toxic)
		r.lane.fault = &r.fault
		entries[r.prefix] = r.store(s)
	}
	// Half of the rows wait for a stall. The budget holds their parts.
	p := start(ctx, t, o.Origin, rig.StoresFile(t, entries), rig.FetchdOptions{Args: []string{"--memory-budget", "2147483648"}})
	began := time.Now()
	t.Run("rows", func(t *testing.T) {
		p := p.in(t)
		for _, r := range rows {
			t.Run(r.name(), func(t *testing.T) {
				t.Parallel()
				p := p.in(t)
				r.run(ctx, t, p, o)
			})
		}
	})
	took := time.Since(began)

	// On a busy machine the sockets may take a whole part before the fault. Then the answer is missing.
	if late := f.late.Load(); late > 5 {
		t.Errorf("%d faults in the body of a request came after the body, want at most 5", late)
	}
	p.settled(ctx)
	want := make(map[string]bool)
	var orphans int
	for _, r := range rows {
		want[r.prefix+"/body"] = r.success
		if r.orphan {
			orphans += min(r.requests()[createUpload], maxTries)
			if r.once {
				orphans--
			}
		}
	}
	left := s.unfinished(ctx)
	if len(left) > orphans {
		t.Errorf("%d unfinished uploads are left, want the %d of which the answer to CreateMultipartUpload was lost: %v", len(left), orphans, left)
	}
	objects := s.objects(ctx)
	for key := range objects {
		if !want[key] {
			t.Errorf("%s is visible", key)
		}
	}
	for _, r := range rows {
		key := r.prefix + "/body"
		if _, ok := objects[key]; !ok {
			if r.success {
				t.Errorf("%s: no object is visible", r.name())
			}
			continue
		}
		if got, want := s.digest(ctx, key), o.digest(t, r.body()); got != want {
			t.Errorf("%s: the object's digest is %s, want %s", r.name(), got, want)
		}
	}
	clean(ctx, t, map[string]entry{"all": s.entry("")})
	if left := s.unfinished(ctx); len(left) > 0 {
		t.Errorf("%d unfinished uploads are left after fetchd clean: %v", len(left), left)
	}
	t.Logf("%d rows in %s: %d objects, all whole; %d unfinished uploads before fetchd clean, and none after it",
		len(rows), took.Round(time.Second), len(objects), len(left))
}

func (r *faultRow) body() body { return body{r.size, 8} }

func (r *faultRow) run(ctx context.Context, t *testing.T, p *service, o *site) {
	began := time.Now()
	out, err := p.fetch(ctx, request(o.URL("http", "/s/"+r.prefix+"/"+r.body().step()), r.prefix, "body"))
	got := describe(out, err)
	counts := r.requests()
	t.Logf("%s after %s; requests: %v", got, time.Since(began).Round(100*time.Millisecond), counts)
	if n := len(o.Requests(r.prefix)); n != 1 || out.GetAttemptCount() != 1 {
		t.Errorf("%d requests to the origin, %d attempts, want 1", n, out.GetAttemptCount())
	}
	for operation, n := range counts {
		if n > maxTries {
			t.Errorf("%d requests for %s, want at most %d", n, operation, maxTries)
		}
	}
	if counts[r.at] < 2 && r.once && !r.done {
		t.Errorf("%d requests for %s, want one more after the fault", counts[r.at], r.at)
	}
	if !r.success {
		r.wantFailure(t, out, got)
		return
	}
	o.wantStored(t, out, err, r.prefix, "body", r.body())
	if out.GetStoredObject().GetEtag() == "" {
		t.Error("the object has no ETag")
	}
}

// wantFailure checks that the outcome is an error of the store.
func (r *faultRow) wantFailure(t *testing.T, out *pb.FetchOutcome, got string) {
	t.Helper()
	e := out.GetError()
	text := e.GetMessage() + " " + e.GetDetail()
	reason := "store_error"
	if r.stalls() {
		reason = "store_timeout"
	}
	if e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_STORE_FAILURE || !e.GetRetryable() || e.GetReason() != reason || out.GetStoredObject() != nil {
		t.Errorf("%s, want STORE_FAILURE, %s, retryable, no object", got, reason)
	}
	name, _, _ := strings.Cut(r.at, " ")
	for _, want := range []string{r.prefix, name} {
		if !strings.Contains(text, want) {
			t.Errorf("the error %q does not name %s", text, want)
		}
	}
}

// clean runs fetchd clean for the stores.
func clean(ctx context.Context, t *testing.T, entries map[string]entry) {
	t.Helper()
	p, err := rig.Start([]string{rig.Program("fetchd"), "clean", "--stores-file", rig.StoresFile(t, entries), "--older-than", "0s"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.ExitCode(ctx); code != 0 {
		t.Fatalf("fetchd clean: exit code %d, %v: %s", code, err, p.Failure)
	}
}
