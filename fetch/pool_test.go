package fetch_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// TestConnectionsAreKept checks that the connections of many concurrent fetches of one host are
// used again by as many fetches after them.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	const open = 300
	var connected atomic.Int64
	var together sync.WaitGroup // an answer comes once all have asked: none has another's connection
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		together.Done()
		together.Wait()
	}))
	origin.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connected.Add(1)
		}
	}
	origin.Start()
	defer origin.Close()
	c := newClient(t, fetch.Config{Egress: unrestricted})
	for range 2 {
		together.Add(open)
		var fetches sync.WaitGroup
		for range open {
			fetches.Go(func() {
				r := fetch.NewRequest(classify.Standard)
				var err error
				if r.URL, err = urls.Parse(origin.URL); err != nil {
					t.Error(err)
				} else if out := c.Fetch(t.Context(), r, nil); out.Kind != classify.Success || out.Attempts != 1 { // more are permitted: the last one needs a recent connection
					t.Errorf("%s after %d attempts: %+v", out.Kind, out.Attempts, out.Failure)
				}
			})
		}
		fetches.Wait()
	}
	if n := connected.Load(); n != open {
		t.Errorf("%d connections for twice %d fetches, want as many as were open", n, open)
	}
}
