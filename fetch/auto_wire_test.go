package fetch_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
)

// TestAuto checks which bodies are delivered in the outcome, and which in chunks (B4).
func TestAuto(t *testing.T) {
	t.Parallel()
	const tag = ",etag=%22v1%22,range"
	holdBack := func(n int64) func(*fetch.Request) {
		return func(r *fetch.Request) { r.HoldBackBytes = n }
	}
	restart := func(r *fetch.Request) { r.HoldBackBytes, r.Recovery = 1000, fetch.Restart }
	resume := func(offset int64) func(*fetch.Request) {
		return func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: offset, Validator: `"v1"`} }
	}
	for _, row := range []struct {
		name, script string
		change       func(*fetch.Request)
		inline       int     // size of the body in the outcome
		begins       []int64 // offsets in ResponseStarted; none: nothing is streamed
		size         int     // end of the streamed body
		attempts     int
		class        classify.Class
	}{
		{"a small body", "200:size=100", nil, 100, nil, 0, 1, 0},
		{"an empty body", "200:size=0", nil, 0, nil, 0, 1, 0},
		{"an empty body and no hold-back", "200:size=0", holdBack(0), 0, nil, 0, 1, 0},
		{"a 204", "204", nil, 0, nil, 0, 1, 0},
		{"HEAD", "200:size=100", func(r *fetch.Request) { r.Method = "HEAD" }, 0, nil, 0, 1, 0},
		{"a POST", "200:size=100", func(r *fetch.Request) { r.Method, r.Body = "POST", []byte("x") }, 100, nil, 0, 1, 0},
		{"several chunks", "200:size=100000", nil, 100_000, nil, 0, 1, 0},
		{"exactly one chunk", "200:size=31744", nil, 31_744, nil, 0, 1, 0},
		{"of unknown length", "200:size=100000,chunked", nil, 100_000, nil, 0, 1, 0},
		{"decoded", "200:size=100000,coding=gzip", nil, 100_000, nil, 0, 1, 0},
		{"as long as the hold-back", "200:size=1000", holdBack(1000), 1000, nil, 0, 1, 0},
		{"one byte longer", "200:size=1001", holdBack(1000), 0, []int64{0}, 1001, 1, 0},
		{"one byte longer, of unknown length", "200:size=1001,chunked", holdBack(1000), 0, []int64{0}, 1001, 1, 0},
		{"no hold-back", "200:size=1", holdBack(0), 0, []int64{0}, 1, 1, 0},
		{"1 MiB", "200:size=1048576", holdBack(2 << 20), 1 << 20, nil, 0, 1, 0},
		{"more than 1 MiB within the hold-back", "200:size=1048577", holdBack(2 << 20), 0, []int64{0}, 1<<20 + 1, 1, 0},
		{"truncated", "200:size=1000", func(r *fetch.Request) { r.MaxBodyBytes, r.Truncate = 300, true }, 300, nil, 0, 1, 0},
		{"too long", "200:size=1000", func(r *fetch.Request) { r.MaxBodyBytes = 300 }, 0, nil, 0, 1, classify.BodyTooLarge},
		{"the expected digest", "200:size=1000", func(r *fetch.Request) { r.Integrity.Size = 1000 }, 1000, nil, 0, 1, 0},
		{"another size", "200:size=1000", func(r *fetch.Request) { r.Integrity.Size = 999 }, 0, nil, 0, 1, classify.Integrity},
		{"a failed status", "404:size=1000", nil, 0, nil, 0, 1, classify.HTTPClientError},
		{"no memory for a copy", "200:size=1000", func(r *fetch.Request) { r.InlineCopies = 1 << 20 }, 0, []int64{0}, 1000, 1, 0},

		{"a break before the end", "200:size=1000,cut=500/200:size=1000", nil, 1000, nil, 0, 2, 0},
		{"a break after the hold-back, resumed", "200:size=2000,cut=1500" + tag + "/200:size=2000" + tag, holdBack(1000), 0, []int64{0, 1500}, 2000, 2, 0},
		{"restarted with another body", "200:size=2000,cut=1500" + tag + "/200:size=100,etag=%22v2%22", restart, 0, []int64{0, 0}, 100, 2, 0},
		{"restarted with an empty body", "200:size=2000,cut=1500" + tag + "/200:size=0,etag=%22v2%22", restart, 0, []int64{0, 0}, 0, 2, 0},
		{"a break that cannot be resumed", "200:size=2000,cut=1500/200:size=2000", holdBack(1000), 0, []int64{0}, 1500, 1, classify.BodyInterrupted},
		{"a resume point", "200:size=1000" + tag, resume(600), 0, []int64{600}, 1000, 1, 0},
		{"a resume point at the end", "200:size=1000" + tag, resume(1000), 0, nil, 1000, 1, 0},
		{"a resume point, restarted", "200:size=900,etag=%22v2%22,range", func(r *fetch.Request) { resume(600)(r); r.Recovery = fetch.Restart }, 0, []int64{0}, 900, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w, b := newWire(t), budget.New(64<<20)
			r := w.request("http", "/s/k/"+row.script)
			r.Delivery, r.Events, r.Memory = fetch.Auto, fetch.OutcomeOnly, b.Lease("caller")
			if row.change != nil {
				row.change(r)
			}
			var got assembled
			got.body = slices.Clone(w.origin.Body(r.ResumePoint.Offset)) // what the caller has
			out := w.client.Fetch(t.Context(), r, got.sink)
			class := classOf(out.Failure)
			if class != row.class || out.Attempts != row.attempts {
				t.Errorf("class %s after %d attempts, want %s after %d", class, out.Attempts, row.class, row.attempts)
			}
			if !bytes.Equal(out.InlineBody, w.origin.Body(int64(row.inline))) {
				t.Errorf("%d bytes in the outcome, want %d", len(out.InlineBody), row.inline)
			}
			if !slices.Equal(got.begins, row.begins) {
				t.Errorf("responses at %d, want %d", got.begins, row.begins)
			}
			if n := len(got.begins); n > 0 && out.Kind == classify.Success { // an empty body may have replaced the one before
				got.body = got.body[:max(got.begins[n-1], int64(row.size))]
			}
			if !bytes.Equal(got.body, w.origin.Body(int64(row.size))) {
				t.Errorf("%d bytes in chunks, want %d", len(got.body), row.size)
			}
			if used := b.Usage(); used[budget.Body] != 2*int64(row.inline)+int64(len(out.ErrorBody)) || used[budget.HoldBack] != 0 {
				t.Errorf("%v are charged; want the body of the outcome and its copy, and no hold-back", used)
			}
			r.Memory.Close()
			if used := b.Usage().Total(); used != 0 {
				t.Errorf("%d bytes are charged after the fetch", used)
			}
		})
	}
}

// TestAutoWithLittleMemory checks that a body that exceeds what was granted of the hold-back is
// streamed.
func TestAutoWithLittleMemory(t *testing.T) {
	t.Parallel()
	w, b := newWire(t), budget.New(1<<20) // grants 48 KiB of it
	for size, inline := range map[int64]bool{40_000: true, 60_000: false} {
		r := w.request("http", fmt.Sprintf("/s/k%d/200:size=%d", size, size))
		r.Delivery, r.Memory = fetch.Auto, b.Lease("caller")
		res := w.fetch(r)
		want := w.origin.Body(size)
		if !bytes.Equal(res.InlineBody, want) == inline || !bytes.Equal(res.body, want) != inline {
			t.Errorf("%d bytes: %d in the outcome, %d in chunks", size, len(res.InlineBody), len(res.body))
		}
		r.Memory.Close()
	}
}
