//go:build linux

package stores

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

// places are a bucket and a directory in one service.
type places struct {
	*testing.T
	*server
	*lane
	folder  directory
	entries map[string]entry
}

// in returns p for a subtest.
func (p *places) in(t *testing.T) *places {
	c := *p
	c.T = t
	return &c
}

func newPlaces(ctx context.Context, t *testing.T) *places {
	t.Helper()
	s := newServer(ctx, t)
	p := &places{T: t, server: s, lane: newFront(t, s).lane(t, "prefix"), folder: directory(t.TempDir())}
	p.entries = map[string]entry{"bucket": p.store(s), "folder": {URL: "file://" + string(p.folder)}}
	return p
}

// wantNothing checks that nothing is visible, and that nothing is left of the uploads.
func (p *places) wantNothing(ctx context.Context, t *testing.T) {
	t.Helper()
	if left := p.unfinished(ctx); len(left) > 0 {
		t.Errorf("unfinished uploads are left: %v", left)
	}
	if left := p.folder.unfinished(t); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	if objects := p.objects(ctx); len(objects) > 0 {
		t.Errorf("visible in the bucket: %v", objects)
	}
	if objects := p.folder.objects(t); len(objects) > 0 {
		t.Errorf("visible in the directory: %v", objects)
	}
}

// TestEnds ends fetches in mid-body.
func TestEnds(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 5*time.Minute)
	o, p := newSite(t), newPlaces(ctx, t)
	s := start(ctx, t, o.Origin, writeStores(t, p.entries), options{args: []string{"--drain-time", "500ms"}})
	const stalls, breaks, whole = ",stall=13000000", ",cut=13000000", ""
	for i, row := range []struct {
		name   string
		fault  string // of the origin
		change func(*pb.FetchRequest)
		end    func(s *service, cancel context.CancelFunc)
		code   codes.Code
		class  pb.ErrorClass
	}{
		{"the caller cancels", stalls, nil, func(_ *service, cancel context.CancelFunc) { cancel() }, codes.Canceled, 0},
		{"total_timeout", stalls, func(r *pb.FetchRequest) { r.TimeoutPolicy.TotalTimeout = durationpb.New(2 * time.Second) }, nil, codes.OK, pb.ErrorClass_ERROR_CLASS_DEADLINE},
		{"idle_timeout", stalls, func(r *pb.FetchRequest) {
			r.TimeoutPolicy.IdleTimeout = durationpb.New(500 * time.Millisecond)
			r.RetryPolicy = &pb.RetryPolicy{MaxAttempts: proto.Int32(1)}
		}, nil, codes.OK, pb.ErrorClass_ERROR_CLASS_BODY_TIMEOUT},
		{"every attempt breaks", breaks, nil, nil, codes.OK, pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED},
		{"another digest", whole, func(r *pb.FetchRequest) { r.Integrity = &pb.Integrity{Sha256: strings.Repeat("0", 64)} }, nil, codes.OK, pb.ErrorClass_ERROR_CLASS_INTEGRITY},
		{"another size", whole, func(r *pb.FetchRequest) { r.Integrity = &pb.Integrity{SizeBytes: proto.Int64(1)} }, nil, codes.OK, pb.ErrorClass_ERROR_CLASS_INTEGRITY},
		{"too large", whole + ",no-length", func(r *pb.FetchRequest) { r.BodyPolicy.MaxSizeBytes = proto.Int64(12 << 20) }, nil, codes.OK, pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE},
		{"SIGTERM", stalls, nil, func(s *service, _ context.CancelFunc) { s.Signal(syscall.SIGTERM) }, codes.OK, pb.ErrorClass_ERROR_CLASS_SHUTDOWN}, // the last row
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			s := s.in(t)
			calls, cancel := context.WithCancel(ctx)
			defer cancel()
			p.reset()
			ended := make(chan string, 2)
			for _, store := range []string{"bucket", "folder"} {
				go func() {
					b := body{24 << 20, 8}
					r := request(o.URL("http", fmt.Sprintf("/s/%d-%s/%s%s", i, store, b.step(), row.fault)), store, "body")
					if row.change != nil {
						row.change(r)
					}
					out, err := s.fetch(calls, r)
					problem := ""
					if status.Code(err) != row.code || out.GetError().GetErrorClass() != row.class || out.GetStoredObject() != nil {
						problem = fmt.Sprintf("%s: %s, want %s, %s", store, describe(out, err), row.code, row.class)
					}
					ended <- problem
				}()
			}
			if row.end != nil {
				p.await(ctx, uploadPart+"2", 1)
				rig.Until(ctx, t, "a file is written", func() bool { return len(p.folder.unfinished(t)) > 0 })
				row.end(s, cancel)
			}
			for range 2 {
				if problem := <-ended; problem != "" {
					t.Error(problem)
				}
			}
			if row.class == pb.ErrorClass_ERROR_CLASS_SHUTDOWN {
				if code, err := s.ExitCode(ctx); code != 1 { // some fetches did not end in time
					t.Errorf("fetchd has ended with %d, %v: %s", code, err, s.Failure)
				}
			} else {
				s.settled(ctx)
			}
			p.wantNothing(ctx, t)
			t.Logf("requests: %v", p.requests())
		})
	}
}

// TestOriginBreaks breaks the connection to the origin in mid-body.
func TestOriginBreaks(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 5*time.Minute)
	o, p := newSite(t), newPlaces(ctx, t)
	s := start(ctx, t, o.Origin, writeStores(t, p.entries), options{})
	first, second := body{24 << 20, 8}, body{threeParts, 16}
	const validator, other = `,etag=%22v1%22,range`, `,etag=%22v2%22,range`
	for i, row := range []struct {
		name    string
		steps   []string
		want    body
		creates int   // uploads to the bucket
		from    []int // where each request to the origin begins
	}{
		{"continued", []string{first.step() + validator + ",cut=13000000", first.step() + validator}, first, 1, []int{0, 13_000_000}},
		{"continued twice", []string{first.step() + validator + ",cut=13000000", first.step() + validator + ",cut=7000000", first.step() + validator}, first, 1, []int{0, 13_000_000, 20_000_000}},
		{"no validator", []string{first.step() + ",cut=13000000", first.step()}, first, 2, []int{0, 0}},
		{"another body", []string{first.step() + validator + ",cut=13000000", second.step() + other}, second, 2, nil},
		{"in the first part", []string{first.step() + validator + ",cut=1000000", first.step() + validator}, first, 1, nil},
		{"a small body, no validator", []string{"200:size=1000000,cut=900000", "200:size=1000000,offset=8"}, body{1_000_000, 8}, 0, []int{0, 0}},
	} {
		for _, store := range []string{"bucket", "folder"} {
			t.Run(row.name+"/"+store, func(t *testing.T) {
				p := p.in(t)
				s := s.in(t)
				p.reset()
				key := fmt.Sprintf("%d-%s", i, store)
				out, err := s.fetch(ctx, request(o.URL("http", "/s/"+key+"/"+strings.Join(row.steps, "/")), store, key))
				o.wantStored(t, out, err, store, key, row.want)
				if n := int(out.GetAttempts()); n != len(row.steps) {
					t.Errorf("%d attempts, want %d", n, len(row.steps))
				}
				seen := o.Requests(key)
				for n, from := range row.from {
					want := ""
					if from > 0 {
						want = fmt.Sprintf("bytes=%d-", from)
					}
					if n >= len(seen) || seen[n].Header.Get("Range") != want {
						t.Errorf("the origin got %v, want a request %d with Range %q", seen, n, want)
					}
				}
				if store == "folder" {
					if got := p.folder.digest(t, key); got != o.digest(t, row.want) {
						t.Errorf("the digest is %s, want %s", got, o.digest(t, row.want))
					}
					return
				}
				if got := p.digest(ctx, "prefix/"+key); got != o.digest(t, row.want) {
					t.Errorf("the digest is %s, want %s", got, o.digest(t, row.want))
				}
				if n := p.requests()[createUpload]; n != row.creates {
					t.Errorf("requests %v, want %d uploads", p.requests(), row.creates)
				}
				s.settled(ctx)
				if left := p.unfinished(ctx); len(left) > 0 {
					t.Errorf("unfinished uploads are left: %v", left)
				}
			})
		}
	}
}
