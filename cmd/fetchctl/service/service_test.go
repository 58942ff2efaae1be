package service

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	pb "fetchd/gen/fetchd/v1"
)

// TestProxies checks which proxy a URL gets.
func TestProxies(t *testing.T) {
	t.Parallel()
	const invalid = "is not a proxy"
	text := func(s string) *string { return &s }
	for _, tt := range []struct {
		name string
		flag *string
		env  map[string]string
		url  string
		want string // the proxy, or what the error contains
		from string
	}{
		{name: "none", url: "http://a.test/"},
		{name: "the flag", flag: text("http://p:1"), url: "http://a.test/", want: "http://p:1", from: "--proxy"},
		{name: "the flag without a scheme", flag: text("p:1"), url: "https://a.test/", want: "http://p:1", from: "--proxy"},
		{name: "socks5h", flag: text("socks5h://p:1"), url: "https://a.test/", want: "socks5://p:1", from: "--proxy"},
		{name: "the flag wins over the environment", flag: text("http://p:1"), env: map[string]string{"http_proxy": "http://q:1", "NO_PROXY": "*"}, url: "http://a.test/", want: "http://p:1", from: "--proxy"},
		{name: "the empty flag", flag: text(""), env: map[string]string{"http_proxy": "http://q:1"}, url: "http://a.test/"},
		{name: "without a port", flag: text("http://user:hush@p"), url: "http://a.test/", want: invalid},
		{name: "another scheme", flag: text("ftp://user:hush@p:1"), url: "http://a.test/", want: invalid},
		{name: "no URL", flag: text("http://user:hush@p:x"), url: "http://a.test/", want: invalid},
		{name: "a port that is none", flag: text("http://user:hush@p:70000"), url: "http://a.test/", want: "from 1 to 65535"},
		{name: "http_proxy", env: map[string]string{"http_proxy": "http://q:1"}, url: "http://a.test/", want: "http://q:1", from: "http_proxy"},
		{name: "http_proxy is not for https", env: map[string]string{"http_proxy": "http://q:1"}, url: "https://a.test/"},
		{name: "HTTP_PROXY is ignored", env: map[string]string{"HTTP_PROXY": "http://q:1"}, url: "http://a.test/"},
		{name: "https_proxy wins over HTTPS_PROXY", env: map[string]string{"https_proxy": "q:1", "HTTPS_PROXY": "r:1"}, url: "HTTPS://a.test/", want: "http://q:1", from: "https_proxy"},
		{name: "HTTPS_PROXY wins over ALL_PROXY", env: map[string]string{"HTTPS_PROXY": "q:1", "ALL_PROXY": "r:1"}, url: "https://a.test/", want: "http://q:1", from: "HTTPS_PROXY"},
		{name: "all_proxy", env: map[string]string{"all_proxy": "q:1", "ALL_PROXY": "r:1"}, url: "http://a.test/", want: "http://q:1", from: "all_proxy"},
		{name: "ALL_PROXY", env: map[string]string{"ALL_PROXY": "socks5://r:1"}, url: "https://a.test/", want: "socks5://r:1", from: "ALL_PROXY"},
		{name: "a wrong variable", env: map[string]string{"ALL_PROXY": "socks4://user:hush@r:1"}, url: "https://a.test/", want: "ALL_PROXY: " + invalid},
		{name: "NO_PROXY", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "b.test, .a.test"}, url: "http://x.a.test/"},
		{name: "no_proxy wins", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "a.test", "no_proxy": "b.test"}, url: "http://a.test/", want: "http://q:1", from: "ALL_PROXY"},
		{name: "NO_PROXY of another host", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "b.test"}, url: "http://a.test/", want: "http://q:1", from: "ALL_PROXY"},
		{name: "NO_PROXY with a dot in front", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": ".a.test"}, url: "http://a.test/"},
		{name: "NO_PROXY with a dot behind", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "a.test."}, url: "http://x.a.test/"},
		{name: "NO_PROXY of a name that ends alike", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": ".a.test"}, url: "http://ba.test/", want: "http://q:1", from: "ALL_PROXY"},
		{name: "NO_PROXY of all", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "*"}, url: "http://a.test/"},
		{name: "this machine", env: map[string]string{"ALL_PROXY": "q:1"}, url: "http://127.0.0.1:9/"},
		{name: "not a URL", env: map[string]string{"ALL_PROXY": "q:1"}, url: "http://%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, err := readProxies(tt.flag, func(name string) string { return tt.env[name] })
			if err != nil {
				if text := fmt.Sprint(err); tt.want == "" || !strings.Contains(text, tt.want) || strings.Contains(text, "hush") {
					t.Errorf("error %q, want %q, without the password", err, tt.want)
				}
				return
			}
			got, ok := found.of(tt.url)
			if ok != (tt.want != "") || ok && (got.url.String() != tt.want || got.name != tt.from) {
				t.Errorf("proxy %v of %s, want %s of %s", got.url, got.name, tt.want, tt.from)
			}
		})
	}
}

// TestDetailsAreLimited checks that errors of fetches without events are not kept for ever.
func TestDetailsAreLimited(t *testing.T) {
	t.Parallel()
	d := &details{errors: make(map[attemptKey]string)}
	log := slog.New(d)
	for i := range 3 * maxDetails {
		log.Info("fetch finished", "fetch_id", fmt.Sprint(i), "error", "text")
	}
	if n := len(d.errors); n == 0 || n > maxDetails {
		t.Errorf("%d errors are kept, want at most %d", n, maxDetails)
	}
}

// TestWholeDetail checks which details are completed, and that their errors are kept once.
func TestWholeDetail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		proxy  string
		phase  pb.Phase
		detail string
		logged string
		want   string
	}{
		{"a resolver", "", pb.Phase_PHASE_RESOLVE, "a.test: lookup: no such host", "dial tcp: lookup a.test on 192.0.2.53:53: no such host", "a.test: dial tcp: lookup a.test on 192.0.2.53:53: no such host"},
		{"an address", "", pb.Phase_PHASE_CONNECT, "a.test (192.0.2.1:80): dial tcp: connect: connection refused", "dial tcp 192.0.2.1:80: connect: connection refused", "a.test (192.0.2.1:80): dial tcp: connect: connection refused"},
		{"a proxy", "p.test:1", pb.Phase_PHASE_CONNECT, "a.test", "proxyconnect tcp: EOF", "a.test: proxy p.test:1: proxyconnect tcp: EOF"},
		{"a proxy that refuses", "p.test:1", pb.Phase_PHASE_CONNECT, "a.test: the proxy answers CONNECT with status 407 Proxy Authentication Required", "the proxy answers CONNECT with status 407 Who are you?", "a.test: proxy p.test:1: the proxy answers CONNECT with status 407 Who are you?"},
		{"a proxy that refuses in usual words", "p.test:1", pb.Phase_PHASE_CONNECT, "a.test: the proxy answers CONNECT with status 502 Bad Gateway", "the proxy answers CONNECT with status 502 Bad Gateway", "a.test: proxy p.test:1: the proxy answers CONNECT with status 502 Bad Gateway"},
		{"an error that names the proxy", "p.test:1", pb.Phase_PHASE_CONNECT, "a.test", "socks connect tcp p.test:1->a.test:80: EOF", "a.test: socks connect tcp p.test:1->a.test:80: EOF"},
		{"a status before an error", "p.test:1", pb.Phase_PHASE_TRANSFER, "a.test: status 200 OK: EOF", "read tcp: EOF", "a.test: status 200 OK: read tcp: EOF"},
		{"a status alone", "p.test:1", pb.Phase_PHASE_PROCESSING, "a.test: status 503 Service Unavailable", "status 503 Service Unavailable", "a.test: status 503 Service Unavailable"},
		{"an error that is not logged", "p.test:1", pb.Phase_PHASE_RESOLVE, "a.test: lookup: no such host", "", "a.test: lookup: no such host"},
	} {
		d := &details{errors: make(map[attemptKey]string)}
		if tt.proxy != "" {
			d.proxies.byScheme = map[string]proxy{"http": {url: &url.URL{Scheme: "http", Host: tt.proxy}}}
		}
		slog.New(d).Info("retrying fetch", "fetch_id", "f1", "attempt", 2, "error", tt.logged)
		other := &pb.FetchError{Detail: "other", Phase: tt.phase.Enum()}
		d.complete(attemptKey{"f1", 0}, other)
		e := &pb.FetchError{Detail: tt.detail, Phase: tt.phase.Enum(), Url: "http://a.test/"}
		d.complete(attemptKey{"f1", 2}, e)
		if e.GetDetail() != tt.want || other.GetDetail() != "other" || len(d.errors) != 0 {
			t.Errorf("%s: %q, another attempt %q, %d errors kept; want %q, unchanged, 0", tt.name, e.GetDetail(), other.GetDetail(), len(d.errors), tt.want)
		}
	}
}
