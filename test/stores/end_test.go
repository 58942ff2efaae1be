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

// TestEnds ends fetches in mid-body. Package fetch has the other ways to end.
func TestEnds(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 5*time.Minute)
	o, p := newSite(t), newPlaces(ctx, t)
	s := start(ctx, t, o.Origin, rig.StoresFile(t, p.entries), rig.FetchdOptions{Args: []string{"--drain-time", "500ms"}})
	const stalls = ",stall=13000000"
	for i, row := range []struct {
		name  string
		fault string // of the origin
		end   func(s *service, cancel context.CancelFunc)
		code  codes.Code
		class pb.ErrorClass
	}{
		{"the caller cancels", stalls, func(_ *service, cancel context.CancelFunc) { cancel() }, codes.Canceled, 0},
		{"every attempt breaks", ",cut=13000000", nil, codes.OK, pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED},
		{"SIGTERM", stalls, func(s *service, _ context.CancelFunc) { s.Signal(syscall.SIGTERM) }, codes.OK, pb.ErrorClass_ERROR_CLASS_SHUTDOWN}, // the last row
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
					out, err := s.fetch(calls, request(o.URL("http", fmt.Sprintf("/s/%d-%s/%s%s", i, store, b.step(), row.fault)), store, "body"))
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

// TestOriginBreaks breaks the connection to the origin in mid-body. What is stored is the body of one
// response, continued or not.
func TestOriginBreaks(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 5*time.Minute)
	o, p := newSite(t), newPlaces(ctx, t)
	s := start(ctx, t, o.Origin, rig.StoresFile(t, p.entries), rig.FetchdOptions{})
	first, second := body{24 << 20, 8}, body{threeParts, 16}
	const tag, other = `,etag=%22v1%22,range`, `,etag=%22v2%22,range`
	for key, row := range map[string]struct {
		steps []string
		want  body
	}{
		"continued": {[]string{first.step() + tag + ",cut=13000000", first.step() + tag + ",cut=7000000", first.step() + tag}, first},
		"another":   {[]string{first.step() + tag + ",cut=13000000", second.step() + other}, second},
	} {
		for store, digest := range map[string]func() string{
			"bucket": func() string { return p.digest(ctx, "prefix/"+key) },
			"folder": func() string { return p.folder.digest(t, key) },
		} {
			out, err := s.fetch(ctx, request(o.URL("http", "/s/"+key+store+"/"+strings.Join(row.steps, "/")), store, key))
			o.wantStored(t, out, err, store, key, row.want)
			if got := digest(); got != o.digest(t, row.want) || int(out.GetAttemptCount()) != len(row.steps) {
				t.Errorf("%s: %s: %d attempts, the digest is %s; want %d and %s", store, key, out.GetAttemptCount(), got, len(row.steps), o.digest(t, row.want))
			}
		}
	}
	s.settled(ctx)
	if left := p.unfinished(ctx); len(left) > 0 {
		t.Errorf("unfinished uploads are left: %v", left)
	}
}
