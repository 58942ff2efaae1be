package caller

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// transport returns a transport that can keep the connections of all fetches in flight, so that
// no measured fetch opens one.
func transport(open int) *http.Transport {
	return &http.Transport{MaxIdleConns: max(open, 1024), MaxIdleConnsPerHost: max(open, 64), IdleConnTimeout: 90 * time.Second}
}

// netHTTP is net/http alone.
func netHTTP(o *Options, size int64) (*load, error) {
	t := transport(o.Open)
	return same(o, asking(o.Target, size, (&http.Client{Transport: t}).Do), t.CloseIdleConnections), nil
}

// retryable is go-retryablehttp with its own defaults, without logging.
func retryable(o *Options, size int64) (*load, error) {
	t := transport(o.Open)
	c := retryablehttp.NewClient()
	c.Logger = nil // the default logs every URL to standard error
	c.HTTPClient.Transport = t
	do := func(req *http.Request) (*http.Response, error) {
		return c.Do(&retryablehttp.Request{Request: req})
	}
	return same(o, asking(o.Target, size, do), t.CloseIdleConnections), nil
}

// asking returns a call that sends a request with do and reads the response.
func asking(target string, size int64, do func(*http.Request) (*http.Response, error)) func(context.Context, *recorder) error {
	return func(ctx context.Context, r *recorder) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		resp, err := do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		r.arrived(int64(len(body)))
		return check(resp.StatusCode, int64(len(body)), size)
	}
}

// engine is package fetch in this process, with its egress guard.
func engine(o *Options, size int64) (*load, error) {
	u, err := urls.Parse(o.Target)
	if err != nil {
		return nil, err
	}
	egress, err := opened(u)
	if err != nil {
		return nil, err
	}
	c, err := fetch.New(fetch.Config{Egress: egress})
	if err != nil {
		return nil, err
	}
	return same(o, func(ctx context.Context, r *recorder) error {
		req := fetch.NewRequest(classify.Standard)
		req.URL, req.Delivery = u, fetch.Inline
		out := c.Fetch(ctx, req, nil)
		if out.Response == nil {
			return fmt.Errorf("outcome %s without a response: %+v", out.Kind, out.Failure)
		}
		r.arrived(int64(len(out.InlineBody)))
		return check(out.Response.StatusCode, int64(len(out.InlineBody)), size)
	}, c.Close), nil
}

// opened allows loopback and the port of u, and nothing else.
func opened(u *url.URL) (fetch.Egress, error) {
	at, err := netip.ParseAddrPort(u.Host)
	if err != nil {
		return fetch.Egress{}, fmt.Errorf("target: %w: give an address and a port", err)
	}
	return fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{at.Port()}}, nil
}
