package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// held is a source that answers when the test lets it.
type held struct {
	asked   int
	release chan error
}

func (h *held) Token(ctx context.Context, _ Secret) (Secret, error) {
	h.asked++
	select {
	case err := <-h.release:
		return "new", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// TestSharedRefresh has a hundred callers wait for one refresh. All get its token or
// its error, and it ends at its own time limit.
func TestSharedRefresh(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, row := range []struct {
		name  string
		after func(*held)
		want  error
		took  time.Duration
	}{
		{"it succeeds", func(h *held) { h.release <- nil }, nil, 0},
		{"it fails", func(h *held) { h.release <- failed }, failed, 0},
		{"it does not end", func(*held) {}, context.DeadlineExceeded, refreshTime},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &held{release: make(chan error)}
				p := &provider{header: "Authorization", scheme: "Bearer", source: h, current: "old"}
				began := time.Now()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						if err := p.Refresh(t.Context(), "Bearer old"); !errors.Is(err, row.want) {
							t.Errorf("Refresh = %v, want %v", err, row.want)
						}
					})
				}
				synctest.Wait()
				row.after(h)
				all.Wait()
				if took := time.Since(began); h.asked != 1 || took != row.took {
					t.Errorf("asked %d times, for %s; want once, for %s", h.asked, took, row.took)
				}
			})
		})
	}
}

// TestTokenEndpointHTTP checks that tokens are requested over HTTP/1.1, where no frame of the endpoint
// can stop the request beyond its time limit.
func TestTokenEndpointHTTP(t *testing.T) {
	t.Parallel()
	source, err := (&ClientCredentials{TokenURL: "https://login.example/token", ID: "a", Secret: "b"}).source()
	if err != nil {
		t.Fatal(err)
	}
	c, _ := source.(*client)
	transport, ok := c.http.Transport.(finals)
	if !ok || !transport.Protocols.HTTP1() || transport.Protocols.HTTP2() {
		t.Errorf("the transport is %T with %v, want HTTP/1.1 alone", c.http.Transport, transport)
	}
}
