package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/warc"
)

// TestCurlTable checks that the script runs every row of the table in the help.
func TestCurlTable(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/script/curl.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range curlTable {
		if _, after, ok := bytes.Cut(script, []byte("\n# "+row.curl+"\n")); !ok || !bytes.HasPrefix(after, []byte("e")) {
			t.Errorf("the script does not run the row %q", row.curl)
		}
	}
}

// TestCurlHelp checks that the table fits a terminal.
func TestCurlHelp(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(curlHelp()) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// startProxy starts a proxy that forwards every request to target, and returns its address.
func startProxy(target string) (addr string, stop func()) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", target)
		if err != nil {
			http.Error(w, "unreachable", http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		if r.Method == http.MethodConnect {
			_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		} else {
			_ = r.Write(there)
		}
		go func() {
			_, _ = io.Copy(there, here)
			_ = there.Close()
		}()
		_, _ = io.Copy(here, there)
	}))
	return proxy.Listener.Addr().String(), proxy.Close
}

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
		{name: "the flag, https", flag: text("socks5://p:1"), url: "https://a.test/", want: "socks5://p:1", from: "--proxy"},
		{name: "the flag without a scheme", flag: text("p:1"), url: "https://a.test/", want: "http://p:1", from: "--proxy"},
		{name: "socks5h", flag: text("socks5h://p:1"), url: "https://a.test/", want: "socks5://p:1", from: "--proxy"},
		{name: "the flag wins over the environment", flag: text("http://p:1"), env: map[string]string{"http_proxy": "http://q:1", "NO_PROXY": "*"}, url: "http://a.test/", want: "http://p:1", from: "--proxy"},
		{name: "the empty flag", flag: text(""), env: map[string]string{"http_proxy": "http://q:1"}, url: "http://a.test/"},
		{name: "without a port", flag: text("http://user:hush@p"), url: "http://a.test/", want: invalid},
		{name: "another scheme", flag: text("ftp://user:hush@p:1"), url: "http://a.test/", want: invalid},
		{name: "no URL", flag: text("http://user:hush@p:x"), url: "http://a.test/", want: invalid},
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
		{name: "NO_PROXY of all", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "*"}, url: "http://a.test/"},
		{name: "NO_PROXY of a network", env: map[string]string{"ALL_PROXY": "q:1", "NO_PROXY": "10.0.0.0/8"}, url: "http://10.1.2.3/"},
		{name: "this machine", env: map[string]string{"ALL_PROXY": "q:1"}, url: "http://127.0.0.1:9/"},
		{name: "not a URL", env: map[string]string{"ALL_PROXY": "q:1"}, url: "http://%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, err := (&insideFlags{Proxy: tt.flag}).proxies(func(name string) string { return tt.env[name] })
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

// TestDownloadProxies downloads through the proxy of the environment and past it, in one run.
func TestDownloadProxies(t *testing.T) {
	t.Parallel()
	o, dir := startOrigin(t), t.TempDir()
	addr, stop := startProxy(o.Addr("http"))
	t.Cleanup(stop)
	env := map[string]string{"http_proxy": "http://user:hush@" + addr}
	got := runWith(t.Context(), "", env, "download", "-d", dir, "http://proxied.test/s/proxied/200:size=10", o.URL("http", "/s/direct/200:size=20"))
	if got.code != 0 || strings.Contains(got.err, "hush") {
		t.Errorf("exit status %d, %q", got.code, got.err)
	}
	if proxied, direct := o.Requests("proxied"), o.Requests("direct"); len(proxied) != 1 || len(direct) != 1 {
		t.Errorf("%d requests by the proxy and %d without it, want one each", len(proxied), len(direct))
	}
}

// TestDownloadRecordsProxies checks that one file has the records of downloads through the proxy of the
// environment and past it.
func TestDownloadRecordsProxies(t *testing.T) {
	t.Parallel()
	o, dir := startOrigin(t), t.TempDir()
	addr, stop := startProxy(o.Addr("http"))
	t.Cleanup(stop)
	env := map[string]string{"http_proxy": "http://user:hush@" + addr}
	got := runWith(t.Context(), "", env, "download", "-d", dir, "--warc", dir+"/both.warc", "http://proxied.test/s/proxied/200:size=10", o.URL("http", "/s/direct/200:size=20"))
	if got.code != 0 {
		t.Errorf("exit status %d, %q", got.code, got.err)
	}
	if records := readWARC(t, dir+"/both.warc"); len(records) != 4 {
		t.Errorf("%d records, want 4: %+v", len(records), records)
	}
}

// warcRecord is what is equal in two records of equal exchanges.
type warcRecord struct {
	warcType  warc.Type
	uri       string
	protocol  string
	block     string
	addressed bool // has WARC-IP-Address
}

var dateLine = regexp.MustCompile("(?m)^Date: .*$")

// readWARC reads the requests and responses of a file, which must not contain the password of a proxy.
func readWARC(t *testing.T, name string) (records []warcRecord) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hush", "Proxy-Authorization", base64.StdEncoding.EncodeToString([]byte("user:hush"))} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s contains %q", name, secret)
		}
	}
	r := warc.NewReader(bytes.NewReader(data), warc.ReaderOptions{Verify: true})
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records
		}
		if err != nil {
			t.Fatal(err)
		}
		block, err := io.ReadAll(record.Block)
		if err != nil {
			t.Fatal(err)
		}
		if record.Type != warc.Warcinfo {
			records = append(records, warcRecord{record.Type, record.TargetURI, strings.Join(record.Protocol, " "), dateLine.ReplaceAllString(string(block), ""), record.IPAddress.IsValid()})
		}
	}
}

// TestRecordThroughProxy checks that the records of a fetch through a proxy are equal to those of one
// without, except that the address of the origin is not known.
func TestRecordThroughProxy(t *testing.T) {
	t.Parallel()
	for _, listener := range []string{"http", "https"} {
		t.Run(listener, func(t *testing.T) {
			t.Parallel()
			o, dir := startOrigin(t), t.TempDir()
			addr, stop := startProxy(o.Addr(listener))
			t.Cleanup(stop)
			if err := os.WriteFile(dir+"/ca.pem", o.CAPEM(), 0o600); err != nil {
				t.Fatal(err)
			}
			record := func(name, proxy string) []warcRecord {
				got := runWith(t.Context(), "", nil, "get", "-x", proxy, "--cacert", dir+"/ca.pem", "--warc", dir+"/"+name, o.URL(listener, "/cycle/recorded/503/200:size=3000"))
				if got.code != 0 {
					t.Fatalf("exit status %d, %q", got.code, got.err)
				}
				return readWARC(t, dir+"/"+name)
			}
			want, got := record("direct.warc", ""), record("proxied.warc", "http://user:hush@"+addr)
			for i := range want {
				if !want[i].addressed {
					t.Errorf("record %d: no address without a proxy", i)
				}
				want[i].addressed = false
			}
			if len(want) != 4 || !slices.Equal(got, want) {
				t.Errorf("%+v\nwant %+v", got, want)
			}
		})
	}
}

// TestWholeErrors checks that errors of the service inside name resolvers and proxies.
func TestWholeErrors(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	refused := o.Addr("refused")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a proxy", []string{"-x", "http://user:hush@" + refused, "http://a.test/"}, "a.test: proxyconnect tcp: dial tcp " + refused + ": connect: connection refused"},
		{"an origin", []string{o.URL("refused", "/")}, refused + ": dial tcp: connect: connection refused"},
		{"a status", []string{o.URL("http", "/s/status/503")}, o.Addr("http") + ": status 503 Service Unavailable\n"},
	} {
		for _, output := range []string{"--no-follow", "--json"} {
			got := fetchctl(t, append([]string{"get", "-r", "1", output}, tt.args...)...)
			if n := strings.Count(got.err, strings.TrimSuffix(tt.want, "\n")); n != 2 && output == "--no-follow" || n < 2 || strings.Contains(got.err, "hush") {
				t.Errorf("%s, %s: %d times %q in\n%s", tt.name, output, n, tt.want, got.err)
			}
		}
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
		d := &details{proxy: tt.proxy, errors: make(map[attemptKey]string)}
		slog.New(d).Info("retrying fetch", "fetch_id", "f1", "attempt", 2, "error", tt.logged)
		other := &pb.FetchError{Detail: "other", Phase: tt.phase}
		d.complete(attemptKey{"f1", 0}, other)
		e := &pb.FetchError{Detail: tt.detail, Phase: tt.phase}
		d.complete(attemptKey{"f1", 2}, e)
		if e.GetDetail() != tt.want || other.GetDetail() != "other" || len(d.errors) != 0 {
			t.Errorf("%s: %q, another attempt %q, %d errors kept; want %q, unchanged, 0", tt.name, e.GetDetail(), other.GetDetail(), len(d.errors), tt.want)
		}
	}
}
