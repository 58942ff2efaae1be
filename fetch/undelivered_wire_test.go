package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"fetchd/fetch"
)

// TestUndelivered checks that the summary of a body counts what the sink took, and not a chunk that it
// refused or that was never passed to it.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	const size, chunk = 100_000, 31 << 10
	w := newWire(t)
	request := w.request("http", "/s/k/200:size=100000,chunked")
	for _, row := range []struct {
		name     string
		holdBack int64
		taken    int // chunks that the sink takes before it fails
		err      error
		size     int64
	}{
		{"the caller is gone", size, 1, errors.New("gone"), chunk},
		{"cancelled", size, 1, fetch.ErrCancelled, chunk},
		{"no memory", size, 2, fetch.ErrOutOfMemory, 2 * chunk},
		{"the last chunk", size, 3, fetch.ErrCancelled, 3 * chunk},
		{"nothing was delivered", size, 0, fetch.ErrCancelled, size}, // what was read
		{"cancelled after a chunk", size, 1, nil, chunk},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := *request
			r.HoldBackBytes = row.holdBack
			chunks, refused := 0, false
			var got int64
			out := w.client.Fetch(ctx, &r, func(e fetch.Event) error {
				b, ok := e.(fetch.BodyChunk)
				switch {
				case !ok:
					return nil
				case refused:
					t.Error("a chunk after one that was refused")
				case chunks == row.taken:
					refused = true
					return row.err
				}
				chunks++
				got += int64(len(b.Data))
				if chunks == row.taken && row.err == nil {
					cancel()
				}
				return nil
			})
			if out.Failure == nil || out.Body.Size != row.size {
				t.Errorf("summary has %d bytes, %d were delivered; failure %+v", out.Body.Size, got, out.Failure)
			}
			if got > 0 && out.Body.SHA256 != "" {
				t.Errorf("digest %s of bytes that were not all delivered", out.Body.SHA256)
			}
		})
	}
}

// TestRefusedChunkIsNotReused checks that no later fetch writes into a chunk that a sink has refused:
// package server may still be sending it when its task ends.
func TestRefusedChunkIsNotReused(t *testing.T) { //nolint:paralleltest // other tests would take the memory from the pool
	w := newWire(t)
	for i, row := range []struct {
		name     string
		holdBack int64
		refused  int // index of the chunk
		err      error
	}{
		{"the caller is gone", 0, 0, errors.New("gone")},
		{"cancelled", 0, 1, fetch.ErrCancelled},
		{"no memory", 0, 0, fetch.ErrOutOfMemory},
		{"the first of a hold-back", 100_000, 0, fetch.ErrCancelled},
		{"the last of a hold-back", 100_000, 3, errors.New("gone")},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := w.in(t)
			r := w.request("http", fmt.Sprintf("/s/k%d/200:size=100000,chunked", i))
			r.HoldBackBytes = row.holdBack
			chunks := 0
			var kept, want []byte
			w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
				if b, ok := e.(fetch.BodyChunk); ok {
					if chunks++; chunks > row.refused {
						kept, want = b.Data, bytes.Clone(b.Data)
						return row.err
					}
				}
				return nil
			})
			for n := range 20 {
				w.client.Fetch(t.Context(), w.request("http", fmt.Sprintf("/s/k%d-%d/200:body=other", i, n)), nil)
			}
			if len(kept) == 0 || !bytes.Equal(kept, want) {
				t.Errorf("the chunk of %d bytes starts with %.5q, want %.5q", len(kept), kept, want)
			}
		})
	}
}
