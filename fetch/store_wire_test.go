package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
)

// shelf is a destination that keeps objects in memory, and fails on request.
type shelf struct {
	ready, begin, commit error
	space                func(u *shelved) error // nil: there is space
	uploads              []*shelved
}

// shelved is an upload to a shelf.
type shelved struct {
	shelf  *shelf
	ctx    context.Context
	object fetch.Object
	next   []byte
	body   []byte
	state  string // "", "committed" or "aborted"
}

type shelfError string

func (e shelfError) Error() string  { return "store shelf at 192.0.2.9: " + string(e) }
func (e shelfError) Reason() string { return "store_error" }
func (e shelfError) Detail() string { return "store shelf: " + string(e) }

func (s *shelf) Ready() error { return s.ready }

func (s *shelf) Begin(ctx context.Context, o fetch.Object) (fetch.Upload, error) {
	if s.begin != nil {
		return nil, s.begin
	}
	u := &shelved{shelf: s, ctx: ctx, object: o}
	s.uploads = append(s.uploads, u)
	return u, nil
}

func (u *shelved) Space() ([]byte, error) {
	if u.state != "" {
		return nil, fmt.Errorf("the upload is %s", u.state)
	}
	if u.shelf.space != nil {
		if err := u.shelf.space(u); err != nil {
			return nil, err
		}
	}
	u.next = make([]byte, 40_000)
	return u.next, nil
}

func (u *shelved) Wrote(n int) error {
	u.body = append(u.body, u.next[:n]...)
	return nil
}

func (u *shelved) Commit(sha256 string) (fetch.StoredObject, error) {
	if u.shelf.commit != nil {
		return fetch.StoredObject{}, u.shelf.commit
	}
	if u.state != "" {
		return fetch.StoredObject{}, fmt.Errorf("the upload is %s", u.state)
	}
	if sha256 != digest(u.body) {
		return fetch.StoredObject{}, fmt.Errorf("digest %s of %d bytes", sha256, len(u.body))
	}
	u.state = "committed"
	return fetch.StoredObject{Key: "k", ETag: `"e"`, Version: "v"}, nil
}

func (u *shelved) Abort() {
	if u.state == "" {
		u.state = "aborted"
	}
}

func (s *shelf) states() []string {
	var states []string
	for _, u := range s.uploads {
		states = append(states, u.state)
	}
	return states
}

// TestStore checks what becomes of uploads when responses and bodies fail.
func TestStore(t *testing.T) {
	t.Parallel()
	const (
		size = resumeSize
		tag  = `,etag=%22v1%22,range`
	)
	cut := func(params string, at int) string { return fmt.Sprintf("200:size=%d,cut=%d%s", size, at, params) }
	whole := func(params string) string { return fmt.Sprintf("200:size=%d%s", size, params) }
	ok, once := []string{"committed"}, []string{""}
	for _, row := range []struct {
		name, script string
		change       func(*fetch.Request)
		want         string   // "ok", or the failure's class, reason and stop reason
		stored       int      // bytes of the object; negative: none
		uploads      []string // how they ended
		ranges       []string // as the origin saw them
	}{
		{"a body", whole(""), nil, "ok", size, ok, once},
		{"an empty body", "200:size=0", nil, "ok", 0, ok, once},
		{"a coded body", whole(",coding=gzip"), patient, "ok", size, ok, once},
		{"a 204", "204", nil, "ok", -1, nil, once},
		{"a 404", "404:size=10", nil, "http_client_error  not_retried", -1, nil, once},
		{"a 503, then a body", "503/" + whole(""), nil, "ok", size, ok, []string{"", ""}},
		{"a redirect", "302:to=%2Fs%2Fk%2F" + whole(""), nil, "ok", size, ok, nil},

		{"continued", cut(tag, 300_000) + "/" + whole(tag), nil, "ok", size, ok, []string{"", "bytes=300000-"}},
		{"continued twice", cut(tag, 300_000) + "/" + cut(tag, 200_000) + "/" + whole(tag), nil, "ok", size, ok, []string{"", "bytes=300000-", "bytes=500000-"}},
		{"continued after a 503", cut(tag, 300_000) + "/503/" + whole(tag), nil, "ok", size, ok, []string{"", "bytes=300000-", "bytes=300000-"}},
		{"nothing was missing", "200:size=1000000,chunked" + tag + ",chunk-fault=no-last/" + whole(tag), nil, "ok", size, ok, []string{"", "bytes=1000000-"}},
		{"no validator", cut("", 300_000) + "/" + whole(""), nil, "ok", size, []string{"aborted", "committed"}, []string{"", ""}},
		{"a 200 to the range", cut(",etag=%22v1%22", 300_000) + "/" + whole(",etag=%22v1%22"), nil, "ok", size, []string{"aborted", "committed"}, []string{"", "bytes=300000-"}},
		{"a wrong 206", cut(tag, 300_000) + "/206:size=1000/" + whole(tag), nil, "ok", size, []string{"aborted", "committed"}, []string{"", "bytes=300000-", ""}},
		{"no recovery makes no difference", cut(tag, 300_000) + "/" + whole(tag), func(r *fetch.Request) { r.Recovery = fetch.NoRecovery }, "ok", size, ok, []string{"", "bytes=300000-"}},
		{"broken each time", cut("", 300_000), nil, "body_interrupted cut attempts_exhausted", -1, []string{"aborted", "aborted", "aborted"}, []string{"", "", ""}},
		{"broken before the first byte", cut(tag, 0) + "/" + whole(tag), nil, "ok", size, []string{"aborted", "committed"}, []string{"", ""}},
		{"broken and gone", cut(tag, 300_000) + "/404", nil, "http_client_error  not_retried", -1, []string{"aborted"}, []string{"", "bytes=300000-", ""}},

		{"another digest", whole(""), func(r *fetch.Request) { r.Integrity.SHA256 = strings.Repeat("0", 64) }, "integrity sha256 not_retried", -1, []string{"aborted"}, once},
		{"another size", whole(",chunked"), func(r *fetch.Request) { r.Integrity.Size = 7 }, "integrity size not_retried", -1, []string{"aborted"}, once},
		{"too long", whole(",chunked"), func(r *fetch.Request) { r.MaxBodyBytes = size / 2 }, "body_too_large max_size_bytes not_retried", -1, []string{"aborted"}, once},
		{"known to be too long", whole(""), func(r *fetch.Request) { r.MaxBodyBytes = size / 2 }, "body_too_large content_length not_retried", -1, nil, once},
		{"empty but required", "200:size=0", func(r *fetch.Request) { r.Content.RequireBody = true }, "empty_body empty_body not_retried", -1, []string{"aborted"}, once},
	} {
		for _, listener := range []string{"http", "https"} {
			if listener == "https" && strings.Contains(row.script, "chunk") {
				continue // HTTP/1.1 alone has them
			}
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				w, to := newWire(t), new(shelf)
				r := w.request(listener, "/s/k/"+row.script)
				r.Delivery, r.Destination = fetch.Store, to
				if row.change != nil {
					row.change(r)
				}
				out := w.client.Fetch(t.Context(), r, nil)
				if got := failureText(out); got != row.want {
					t.Errorf("%s, want %s", got, row.want)
				}
				if got := to.states(); !slices.Equal(got, row.uploads) {
					t.Errorf("uploads %q, want %q", got, row.uploads)
				}
				if row.ranges != nil {
					w.wantRanges(row.ranges)
				}
				switch {
				case row.stored < 0 && out.Stored != nil:
					t.Errorf("stored %+v, want nothing", out.Stored)
				case row.stored >= 0 && out.Stored == nil:
					t.Error("nothing is stored")
				case row.stored >= 0:
					got, want := to.uploads[len(to.uploads)-1], w.origin.Body(int64(row.stored))
					if !bytes.Equal(got.body, want) || out.Body.SHA256 != digest(want) {
						t.Errorf("%d bytes, digest %s, want %d and %s", len(got.body), out.Body.SHA256, len(want), digest(want))
					}
				}
			})
		}
	}
}

// failureText returns "ok", or the class, reason and stop reason of a failure.
func failureText(out *fetch.Outcome) string {
	f := out.Failure
	if f == nil {
		return "ok"
	}
	reason := f.Reason
	if f.Class == classify.BodyInterrupted {
		reason = "cut" // HTTP/1.1 and HTTP/2 name it differently
	}
	return fmt.Sprintf("%s %s %s", f.Class, reason, out.StopReason)
}

// TestStoreFails checks that a failure of the store ends the fetch, and is not the origin's.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	second := func(err error) func(*shelved) error {
		return func(u *shelved) error {
			if len(u.body) > 0 {
				return err
			}
			return nil
		}
	}
	for _, row := range []struct {
		name      string
		to        *shelf
		want      string
		detail    string
		exchanges int
		uploads   []string
	}{
		{"known to be down", &shelf{ready: shelfError("down")}, "store_failure store_error stopped", "store shelf: down", 0, nil},
		{"at the begin", &shelf{begin: shelfError("full")}, "store_failure store_error stopped", "store shelf: full", 1, nil},
		{"in the middle", &shelf{space: second(shelfError("broke"))}, "store_failure store_error stopped", "store shelf: broke", 1, []string{"aborted"}},
		{"at the end", &shelf{commit: shelfError("late")}, "store_failure store_error stopped", "store shelf: late", 1, []string{"aborted"}},
		{"without a reason", &shelf{commit: errors.New("at 192.0.2.9")}, "store_failure store_error stopped", "", 1, []string{"aborted"}},
		{"without memory", &shelf{space: second(budget.ErrRefused)}, "out_of_memory memory stopped", "", 1, []string{"aborted"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", "/s/k/200:size=100000")
			r.Delivery, r.Destination = fetch.Store, row.to
			out := w.client.Fetch(t.Context(), r, nil)
			if got := failureText(out); got != row.want || out.Exchanges != row.exchanges {
				t.Errorf("%s after %d exchanges, want %s after %d", got, out.Exchanges, row.want, row.exchanges)
			}
			if f := out.Failure; f != nil && f.Class == classify.StoreFailure && (f.Detail != row.detail || !f.Retryable || f.FailureType != classify.Transient) {
				t.Errorf("%+v, want detail %q, transient and retryable", f, row.detail)
			}
			if got := row.to.states(); !slices.Equal(got, row.uploads) {
				t.Errorf("uploads %q, want %q", got, row.uploads)
			}
		})
	}
}

// TestStoreCancelled checks that a fetch that ends while the store is busy ends as what ended it,
// and that the upload's context ends with it.
func TestStoreCancelled(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	ctx, cancel := context.WithCancel(t.Context())
	to := &shelf{space: func(u *shelved) error {
		cancel()
		<-u.ctx.Done()
		return shelfError("cancelled")
	}}
	r := w.request("http", "/s/k/200:size=100000")
	r.Delivery, r.Destination = fetch.Store, to
	out := w.client.Fetch(ctx, r, nil)
	if got := failureText(out); got != "cancelled  stopped" {
		t.Errorf("%s, want cancelled", got)
	}
	if got := to.states(); !slices.Equal(got, []string{"aborted"}) {
		t.Errorf("uploads %q, want one, aborted", got)
	}
}

// TestSlowStore checks that the store's time is not the origin's: it counts for total_timeout only.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		total time.Duration
		want  string
	}{
		{"within the time", time.Hour, "ok"},
		{"not within it", 30 * time.Second, "deadline  deadline"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t, nil)
				to := &shelf{space: func(u *shelved) error {
					select {
					case <-time.After(time.Minute):
						return nil
					case <-u.ctx.Done():
						return context.Cause(u.ctx)
					}
				}}
				r := w.standard(classify.Standard, "/s/k/200:size=100")
				r.Delivery, r.Destination, r.TotalTimeout = fetch.Store, to, row.total
				r.AttemptTimeout, r.IdleTimeout = 10*time.Second, 10*time.Second
				out := w.client.Fetch(t.Context(), r, nil)
				if got := failureText(out); got != row.want {
					t.Errorf("%s, want %s", got, row.want)
				}
				if f := out.Failure; f != nil && f.Detail != "the store was taking the body" {
					t.Errorf("detail %q, want the store and no origin", f.Detail)
				}
				if row.want == "ok" && out.Hops[0].Exchange.Backpressure < time.Minute {
					t.Errorf("backpressure %s, want the minute in the store", out.Hops[0].Exchange.Backpressure)
				}
			})
		})
	}
}
