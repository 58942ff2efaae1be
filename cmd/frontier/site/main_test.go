package site_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fetchd/cmd/frontier/site"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a site that ends with the test.
func start(tb testing.TB, cfg site.Config) *site.Site {
	tb.Helper()
	s, err := site.Start(cfg)
	if err != nil {
		tb.Fatalf("Start: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

// newClient returns a client that uses the site's name server and follows no redirects.
func newClient(tb testing.TB, s *site.Site) *http.Client {
	tb.Helper()
	d := &net.Dialer{Resolver: s.Resolver()}
	transport := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 100}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// got is an answer with its body.
type got struct {
	*http.Response
	body string
}

// ask sends a request, with a body if it is a POST, and reads the answer.
func ask(ctx context.Context, c *http.Client, method, url string, header ...string) (got, error) {
	var content io.Reader
	if method == http.MethodPost {
		content = strings.NewReader("posted")
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return got{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return got{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return got{Response: resp, body: string(body)}, err
}

// get is ask for a request that must succeed.
func get(t *testing.T, c *http.Client, url string, header ...string) got {
	t.Helper()
	g, err := ask(t.Context(), c, http.MethodGet, url, header...)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return g
}

// await waits until the journal fulfils a condition, and returns it.
func await(t *testing.T, s *site.Site, what string, there func([]site.Visit) bool) []site.Visit {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		visits := s.Visits()
		if there(visits) {
			return visits
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("journal never has %s; it has %+v", what, visits)
		}
	}
}

// ended returns a condition: there are n visits, and all have ended.
func ended(n int) func([]site.Visit) bool {
	return func(visits []site.Visit) bool {
		for _, v := range visits {
			if !v.Ended() {
				return false
			}
		}
		return len(visits) == n
	}
}
