package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// TestTaskBody: a streamed body goes to Task.Body, and one that arrives in the outcome stays there.
func TestTaskBody(t *testing.T) {
	const tag = ",etag=%22v1%22,range"
	r := newRig(t)
	p := client.NewPool()
	defer p.Close()
	p.Open(t.Context(), r.client, 1, nil)
	for _, row := range []struct {
		name, script string
		delivery     func(*pb.StreamDelivery) *pb.BodyPolicy
		limit        int64
		written      int64 // bytes in the file
		inline       int
		class        pb.ErrorClass
	}{
		{"large", "200:size=20000000", auto, 20_000_000, 20_000_000, 0, 0},
		{"small", "200:size=1000", auto, 2000, 0, 1000, 0},
		{"empty", "200:size=0", streamed, 2000, 0, 0, 0},
		{"resumed", "200:size=3000000,cut=2000000" + tag + "/200:size=3000000" + tag, auto, 3_000_000, 3_000_000, 0, 0},
		{"restarted, no validator", "200:size=3000000,cut=2000000/200:size=3000000", auto, 3_000_000, 3_000_000, 0, 0},
		{"restarted with a shorter body", "200:size=3000000,cut=2000000/200:size=500", auto, 3_000_000, 500, 0, 0},
		{"restarted with an empty body", "200:size=3000000,cut=2000000/200:size=0", auto, 3_000_000, 0, 0, 0},
		{"more than max_size_bytes", "200:size=3000000,chunked", auto, 2_000_000, -1, 0, pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			path := filepath.Join(t.TempDir(), "body")
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			must(t, err)
			defer f.Close()
			in := r.request("/s/" + filepath.Base(t.Name()) + "/" + row.script)
			in.BodyPolicy = row.delivery(&pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART})
			in.BodyPolicy.MaxSizeBytes = &row.limit
			out, err := p.Do(t.Context(), client.Task{Request: in, Body: f})
			if out.GetError().GetErrorClass() != row.class || (err != nil) != (row.class != 0) {
				t.Fatalf("Do = %v, %v; want %v", out, err, row.class)
			}
			if row.written < 0 {
				return
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, r.origin.Body(row.written)) || len(out.GetInlineBody()) != row.inline {
				t.Errorf("%d bytes written, %d inline, %v; want %d and %d", len(got), len(out.GetInlineBody()), err, row.written, row.inline)
			}
		})
	}
}

// failing is a BodyWriter that fails.
type failing struct{ write, truncate error }

func (f failing) Write(p []byte) (int, error) { return len(p), f.write }
func (f failing) Truncate(int64) error        { return f.truncate }

// TestTaskBodyFails: the error of a BodyWriter ends its fetch and no other one.
func TestTaskBodyFails(t *testing.T) {
	r := newRig(t)
	p := client.NewPool()
	defer p.Close()
	p.Open(t.Context(), r.client, 1, nil)
	full := errors.New("the disk is full")
	for _, row := range []struct {
		name, script string
		body         failing
		cancelled    bool // else the fetch may have ended before
	}{
		{"while it writes", "200:size=1099511627776", failing{write: full}, true},
		{"the last piece", "200:size=1000", failing{write: full}, false},
		{"when it starts over", "200:size=3000000,cut=2000000/200:size=1099511627776", failing{truncate: full}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/" + filepath.Base(t.Name()) + "/" + row.script)
			in.RetryPolicy = &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD}
			in.BodyPolicy = streamed(&pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART})
			out, err := p.Do(t.Context(), client.Task{Request: in, Body: row.body})
			if !errors.Is(err, full) || len(out.GetInlineBody()) > 0 {
				t.Errorf("Do = %d bytes inline, %v; want %v", len(out.GetInlineBody()), err, full)
			}
			if row.cancelled && out.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_CANCELLED {
				t.Errorf("outcome %v, want CANCELLED", out.GetError())
			}
			if out, err := p.Do(t.Context(), client.Task{Request: r.request("/s/other/200:size=10")}); err != nil || len(out.GetInlineBody()) != 10 {
				t.Errorf("another fetch: %v, %v", out, err)
			}
		})
	}
}

// gate is a BodyWriter that waits before its first piece.
type gate struct {
	bytes.Buffer
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.reached); <-g.open })
	return g.Buffer.Write(p)
}

func (g *gate) Truncate(size int64) error { g.Buffer.Truncate(int(size)); return nil }

// TestTaskBodyWaits: a BodyWriter that is slow stalls its own stream and no other one.
func TestTaskBodyWaits(t *testing.T) {
	const size = 5_000_000
	r := newRig(t)
	p := client.NewPool()
	defer p.Close()
	p.Open(t.Context(), r.client, 2, nil)
	for n, changed := p.Capacity(); n < 2*client.StreamTasks; n, changed = p.Capacity() {
		<-changed
	}
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	slow := r.request(fmt.Sprintf("/s/slow/200:size=%d", size))
	slow.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: new(pb.StreamDelivery)}}
	ended := make(chan error, 1)
	go func() {
		_, err := p.Do(t.Context(), client.Task{Request: slow, Body: g})
		ended <- err
	}()
	<-g.reached
	for range 3 {
		if out, err := p.Do(t.Context(), client.Task{Request: r.request("/s/other/200:size=10")}); err != nil || len(out.GetInlineBody()) != 10 {
			t.Errorf("a fetch of the other stream: %v, %v", out, err)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the slow fetch has ended: %v", err)
	default:
	}
	close(g.open)
	if err := <-ended; err != nil || !bytes.Equal(g.Bytes(), r.origin.Body(size)) {
		t.Errorf("the slow fetch: %d bytes, %v", g.Len(), err)
	}
}
