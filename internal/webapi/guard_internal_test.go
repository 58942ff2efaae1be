package webapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/test/must"
)

// TestFromBrowser checks which requests may come from a page.
func TestFromBrowser(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method string
		header       http.Header
		want         bool
	}{
		{"curl", "GET", http.Header{"User-Agent": {"curl/8"}, "Accept": {"*/*"}}, false},
		{"a page", "POST", http.Header{"Origin": {"http://a.example"}}, true},
		{"a page of a new browser", "GET", http.Header{"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"cors"}, "Accept-Language": {"en"}}, true},
		{"a page of this host without TLS", "GET", http.Header{"Accept-Language": {"en"}}, true},
		{"a page that sends no language", "HEAD", http.Header{"Accept-Language": {""}}, true},
		{"Node's fetch", "GET", http.Header{"Accept-Language": {"*"}, "Sec-Fetch-Mode": {"cors"}}, false},
		{"a program that sends a language", "POST", http.Header{"Accept-Language": {"en"}}, false},
	} {
		if got := fromBrowser(&http.Request{Method: row.method, Header: row.header}); got != row.want {
			t.Errorf("%s: %t, want %t", row.name, got, row.want)
		}
	}
}

// TestRetryAfter checks that Retry-After is the wait of a RetryInfo, in whole seconds.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	st, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(9500 * time.Millisecond)})
	must.Succeed(t, err)
	rw := httptest.NewRecorder()
	SendStatus(rw, http.StatusTooManyRequests, st)
	if got := rw.Header().Get("Retry-After"); got != "10" {
		t.Errorf("Retry-After %q, want 10", got)
	}
}

// TestHostIsOurs checks which Host of a browser is accepted (DNS rebinding).
func TestHostIsOurs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, local, host string
		browser, tls      bool
		want              bool
	}{
		{"loopback by its address", "127.0.0.1:8081", "127.0.0.1:8081", true, false, true},
		{"loopback by localhost", "[::1]:8081", "LocalHost:8081", true, false, true},
		{"loopback by a name", "127.0.0.1:8081", "evil.example:8081", false, false, false},
		{"loopback by a name, with TLS", "127.0.0.1:8081", "evil.example", false, true, false},
		{"a program, by a name", "192.0.2.2:8081", "fetchd.internal:8081", false, false, true},
		{"a page, by a name", "192.0.2.2:8081", "evil.example:8081", true, false, false},
		{"a page, by an address", "192.0.2.2:8081", "192.0.2.2:8081", true, false, true},
		{"loopback by a name of the service", "127.0.0.1:8081", "Fetchd.example:8081", true, false, true},
		{"a page, by a name of the service", "192.0.2.2:8081", "fetchd.example", true, false, true},
		{"a page, by what is under a name of the service", "192.0.2.2:8081", "a.fetchd.example", true, false, false},
		{"a page with TLS, under a name of the certificate", "192.0.2.2:8081", "fetchd.internal", true, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			local, err := net.ResolveTCPAddr("tcp", row.local)
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{Host: row.host, Header: make(http.Header)}
			if row.tls {
				r.TLS = new(tls.ConnectionState)
			}
			g := Guard{Hosts: []string{"fetchd.example"}}
			if got := g.hostIsOurs(r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))), row.browser); got != row.want {
				t.Errorf("%s at %s: %t, want %t", row.host, row.local, got, row.want)
			}
		})
	}
}
