package site_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

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
