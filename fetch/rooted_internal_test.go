package fetch

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"testing"

	"fetchd/classify"
)

// TestRootedLookups checks that the dialer and CheckTarget look up the whole name, so that no search
// list changes it. test/hostile has a search list.
func TestRootedLookups(t *testing.T) {
	t.Parallel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.ErrUnsupported
	}}
	c, err := New(Config{Resolver: resolver, Egress: Egress{Unrestricted: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, row := range []struct{ name, host, asked string }{
		{"two labels", "redis.prod", "redis.prod."},
		{"two labels with a dot", "redis.prod.", "redis.prod."},
		{"one label", "no-such-host", "no-such-host."},
		{"an address", "127.0.0.1", ""},
		{"an IPv6 address", "::1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var dialled, checked string
			r := NewRequest(classify.Standard)
			r.URL, r.Policy.MaxAttempts = mustURL(t, "http://"+net.JoinHostPort(row.host, "80")+"/"), 1
			c.Fetch(tracing(t, &dialled), r, nil)
			_, err := c.CheckTarget(tracing(t, &checked), mustURL(t, "http://"+net.JoinHostPort(row.host, "80")+"/"))
			if dialled != row.asked || checked != row.asked {
				t.Errorf("%s: dialled %q, checked %q, want %q", row.host, dialled, checked, row.asked)
			}
			if failed, ok := errors.AsType[*net.DNSError](err); ok && failed.Name != row.host {
				t.Errorf("the error names %q, want %q", failed.Name, row.host)
			}
		})
	}
}

func tracing(t *testing.T, asked *string) context.Context {
	t.Helper()
	return httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		DNSStart: func(info httptrace.DNSStartInfo) { *asked = info.Host },
	})
}
