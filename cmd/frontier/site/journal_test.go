package site_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fetchd/cmd/frontier/site"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	const first, redirected, robots = site.First, site.Redirected, site.Robots
	want := []site.Visit{
		{Host: "h1.demo.test", Path: "/robots.txt", Method: "GET", Kind: robots},
		{Host: "h1.demo.test", Path: "/p/1", Method: "GET", Kind: first},
		{Host: "h1.demo.test", Path: "/p/1", Method: "GET", Kind: first, Again: true},
		{Host: "h1.demo.test", Path: "/p/1", Method: "HEAD", Kind: first, Again: true},
		{Host: "h2.demo.test", Path: "/p/1", Method: "GET", Kind: first},
		{Host: "h1.demo.test", Path: "/p/1?via=r", Method: "GET", Kind: redirected},
		{Host: "h1.demo.test", Path: "/p/1?a=b&via", Method: "GET", Kind: redirected},
		{Host: "h1.demo.test", Path: "/p/1?aviad=r", Method: "GET", Kind: first},
		{Host: "h1.demo.test", Path: "/p/1?a=via=r", Method: "GET", Kind: first},
		{Host: "h1.demo.test", Path: "/robots.txt?via=r", Method: "GET", Kind: robots},
		{Host: "h1.demo.test", Path: "/robots.txt", Method: "GET", Kind: robots, Again: true},
		{Host: "h1.demo.test", Path: "/x%2Fy", Method: "POST", Kind: first},
	}
	for i, v := range want {
		host := strings.TrimSuffix(v.Host, ".demo.test")
		if _, err := ask(t.Context(), client, v.Method, s.URL(host, v.Path)); err != nil {
			t.Fatalf("%s %s: %v", v.Method, v.Path, err)
		}
		if visits := s.Visits(); len(visits) != i+1 || !visits[i].Ended() || visits[i].End < visits[i].Start {
			t.Fatalf("after answer %d the journal is %+v; want %d visits, the last one ended", i, visits, i+1)
		}
	}
	visits := s.Visits()
	if diff := cmp.Diff(want, visits, cmpopts.IgnoreFields(site.Visit{}, "Start", "End")); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	for i := 1; i < len(visits); i++ {
		if visits[i].Start < visits[i-1].End {
			t.Errorf("visit %d starts at %v, before its forerunner has ended at %v", i, visits[i].Start, visits[i-1].End)
		}
	}
	if s.Count() != len(want) {
		t.Errorf("Count() = %d, want %d", s.Count(), len(want))
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	get(t, client, s.URL("h1", "/slow/20/1"))
	v := s.Visits()[0]
	if v.End-v.Start < 20*time.Millisecond || v.Left {
		t.Errorf("visit %+v took %v, want 20ms or more, and the client has not left", v, v.End-v.Start)
	}
}

func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, method, path string }{
		{"slow", "GET", "/slow/3600000/1"},
		{"slow, posted", "POST", "/slow/3600000/1"},
		{"fault", "GET", "/s/k/silent"},
		{"fault in the body", "GET", "/s/k/200:size=100,stall=10"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, site.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left := make(chan error)
			go func() {
				_, err := ask(ctx, newClient(t, s), tc.method, s.URL("h1", tc.path))
				left <- err
			}()
			await(t, s, "the visit", func(visits []site.Visit) bool { return len(visits) == 1 })
			if v := s.Visits()[0]; v.Ended() {
				t.Fatalf("visit %+v has ended before the client left", v)
			}
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("the client got %v, want that it gave up", err)
			}
			visits := await(t, s, "its end", ended(1))
			if !visits[0].Left {
				t.Errorf("visit %+v does not say that the client left", visits[0])
			}
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	u := s.URL("h1", "/s/k/503/reset/200:body=fine")
	if g := get(t, client, u); g.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("step 1 = %d, want 503", g.StatusCode)
	}
	if g, err := ask(t.Context(), client, http.MethodGet, u); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("step 2 = %+v, %v, want a reset", g, err)
	}
	if g := get(t, client, u); g.StatusCode != http.StatusOK || g.body != "fine" || !g.Close {
		t.Errorf("step 3 = %d, %q, closing %t; want 200, fine, true", g.StatusCode, g.body, g.Close)
	}
	if g := get(t, client, s.URL("h1", "/s/k2/nonsense")); g.StatusCode != http.StatusBadRequest {
		t.Errorf("nonsense = %d, want 400", g.StatusCode)
	}
	// The page after a fault comes from the site, on a new connection.
	if g := get(t, client, s.URL("h1", "/p/1")); g.StatusCode != http.StatusOK {
		t.Errorf("page after faults = %d, want 200", g.StatusCode)
	}
	visits := await(t, s, "five visits that have ended", ended(5))
	for i, again := range []bool{false, true, true, false, false} {
		if v := visits[i]; v.Again != again || v.Left || v.Kind != site.First {
			t.Errorf("visit %d is %+v; want first, again %t, not left", i, v, again)
		}
	}
	if n := len(s.Origin().Requests("k")); n != 3 {
		t.Errorf("the origin has %d requests of k, want 3", n)
	}
}

func TestRedirectHelpers(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	for _, tc := range []struct{ name, path, want string }{
		{"chain", "/r/k/302/2/200", "/r/k/302/1/200?via=r"},
		{"end of the chain", "/r/k/301/1/503/200", "/s/k/503/200?via=r"},
		{"loop", "/loop/k/302", "/loop/k/302?via=r"},
		{"body in parts", "/loop/k/302:size=4,drip=2@1ms", "/loop/k/302:size=4,drip=2@1ms?via=r"},
		{"after a delay", "/loop/k/302:delay=1ms", "/loop/k/302:delay=1ms?via=r"},
		{"loop, later", "/loop/k/302?via=r", "/loop/k/302?via=r"},
		{"loop of two", "/loop2/k/307", "/loop2/k/307/b?via=r"},
		{"loop of two, back", "/loop2/k/307/b?via=r", "/loop2/k/307?via=r"},
		{"own mark", "/s/k2/302:to=%2Fp%2F7%3Fvia=r", "/p/7?via=r"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := get(t, client, s.URL("h1", tc.path))
			if got := g.Header.Get("Location"); g.StatusCode/100 != 3 || got != tc.want {
				t.Errorf("GET %s = %d, Location %q; want a redirect to %q", tc.path, g.StatusCode, got, tc.want)
			}
		})
	}
}

func TestFollowedRedirect(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	client.CheckRedirect = nil
	to := s.URL("h2", "/r/k/302/1/200")
	get(t, client, s.URL("h1", "/go/302/1?to="+url.QueryEscape(to)))
	visits := await(t, s, "three visits that have ended", ended(3))
	want := []site.Visit{
		{Host: "h1.demo.test", Path: "/go/302/1?to=" + url.QueryEscape(to), Method: "GET", Kind: site.First},
		{Host: "h2.demo.test", Path: "/r/k/302/1/200?via=r", Method: "GET", Kind: site.Redirected},
		{Host: "h2.demo.test", Path: "/s/k/200?via=r", Method: "GET", Kind: site.Redirected},
	}
	if diff := cmp.Diff(want, visits, cmpopts.IgnoreFields(site.Visit{}, "Start", "End")); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

func TestConcurrentVisits(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	const hosts, each = 20, 25
	var wait sync.WaitGroup
	for h := range hosts {
		wait.Go(func() {
			for n := range each {
				u := s.URL(fmt.Sprintf("h%d", h), fmt.Sprintf("/p/%d", n))
				if _, err := ask(t.Context(), client, http.MethodGet, u); err != nil {
					t.Errorf("GET %s: %v", u, err)
				}
			}
		})
	}
	wait.Wait()
	visits := s.Visits()
	if !ended(hosts*each)(visits) || s.Count() != hosts*each {
		t.Fatalf("the journal has %d visits, Count() is %d; want %d, all ended", len(visits), s.Count(), hosts*each)
	}
	if found := site.Early(visits, 0, nil); found != nil {
		t.Errorf("clients that wait for each answer overlap: %v", found)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	client := newClient(t, s)
	var wait sync.WaitGroup
	for _, path := range []string{"/slow/3600000/1", "/s/k/silent", "/s/k2/200:size=100,stall=10"} {
		wait.Go(func() {
			if g, err := ask(t.Context(), client, http.MethodGet, s.URL("h1", path)); err == nil {
				t.Errorf("GET %s = %d, want an error: the site closes", path, g.StatusCode)
			}
		})
	}
	await(t, s, "three visits", func(visits []site.Visit) bool { return len(visits) == 3 })
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if visits := s.Visits(); !ended(3)(visits) {
		t.Errorf("journal after Close is %+v, want three visits that have ended", visits)
	}
	wait.Wait()
}
