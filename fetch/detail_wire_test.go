package fetch_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// detailRig is a client that logs to lines, and knows the name origin.test as
// 127.0.0.2, open.test as closed and open addresses, and closed.test as a closed one.
type detailRig struct {
	*wire
	lines    *bytes.Buffer
	resolver string
}

func newDetailRig(t *testing.T, more ...uint16) *detailRig {
	t.Helper()
	w := newWire(t)
	answers := newNames(map[string][][]string{"origin.test": {{"127.0.0.1"}}, "open.test": {{"127.0.0.9", "127.0.0.1"}}, "closed.test": {{"127.0.0.9"}}})
	r := &detailRig{wire: w, lines: new(bytes.Buffer)}
	inner := answers.resolver(t)
	conn, err := inner.Dial(t.Context(), "udp", "")
	must(t, err)
	r.resolver = conn.RemoteAddr().String()
	_ = conn.Close()
	r.use(fetch.Config{NameServer: r.resolver}, more...)
	return r
}

// use replaces the client.
func (r *detailRig) use(cfg fetch.Config, more ...uint16) {
	r.Helper()
	cfg.RootCAs = r.origin.CA()
	cfg.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, AllowPorts: append(ports(r.T, r.origin), more...)}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewJSONHandler(r.lines, nil))
	}
	r.client = newClient(r, cfg)
}

// get fetches path once from a listener, by a host name if one is given.
func (r *detailRig) get(listener, host, path string) *fetch.Outcome {
	r.Helper()
	req := r.request(listener, path)
	if _, port, err := net.SplitHostPort(req.URL.Host); err == nil && host != "" {
		req.URL.Host = net.JoinHostPort(host, port)
	}
	req.Policy.MaxAttempts, req.ConnectTimeout = 1, 2*time.Second
	if listener == "tcp-noread" || strings.Contains(listener+path, "silent") || strings.HasSuffix(path, "half-head") {
		req.HeaderTimeout = 300 * time.Millisecond
	}
	return r.client.Fetch(r.Context(), req, nil)
}

// line returns the last line of the log with msg.
func (r *detailRig) line(msg string) (last map[string]any) {
	r.Helper()
	for line := range bytes.Lines(r.lines.Bytes()) {
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			r.Fatalf("%q: %v", line, err)
		}
		if got["msg"] == msg {
			last = got
		}
	}
	return last
}

// TestDetails checks what callers and the log get about failures over real sockets. Callers get no
// address of a resolver, of a blocked target or of this machine.
func TestDetails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, host, path string
		class                      classify.Class
		detail, logged             string // {port} and {resolver} are put in
		status                     float64
	}{
		{"refused", "refused", "origin.test", "/s/k/200", classify.ConnectRefused,
			"origin.test:{port} (127.0.0.1:{port}): dial tcp: connect: connection refused",
			"dial tcp 127.0.0.1:{port}: connect: connection refused", 0},
		{"refused by a literal address", "refused", "", "/s/k/200", classify.ConnectRefused,
			"127.0.0.1:{port}: dial tcp: connect: connection refused",
			"dial tcp 127.0.0.1:{port}: connect: connection refused", 0},
		{"a name that does not exist", "http", "no.such.test", "/s/k/200", classify.DNSNotFound,
			"no.such.test:{port}: lookup: no such host",
			"dial tcp: lookup no.such.test. on {resolver}: no such host", 0},
		{"a closed address", "http", "closed.test", "/s/k/200", classify.TargetBlocked,
			"closed.test:{port}",
			"dial tcp 127.0.0.9:{port}: target_blocked: address_not_allowed", 0},
		{"a closed and an open address that refuses", "refused", "open.test", "/s/k/200", classify.ConnectFailure,
			"open.test:{port} (127.0.0.1:{port})",
			"connect_failure: permitted_addresses_failed: dial tcp 127.0.0.9:{port}: target_blocked: address_not_allowed", 0},
		{"a TLS alert", "tls-old", "origin.test", "/s/k/200", classify.TLSHandshake,
			"origin.test:{port} (127.0.0.1:{port}): remote error: tls: protocol version not supported",
			"remote error: tls: protocol version not supported", 0},
		{"a certificate of another name", "tls-wrong-name", "origin.test", "/s/k/200", classify.TLSCertificate,
			"origin.test:{port} (127.0.0.1:{port}): tls: failed to verify certificate: x509: certificate is valid for wrong.example, not origin.test",
			"tls: failed to verify certificate: x509: certificate is valid for wrong.example, not origin.test", 0},
		{"no HTTP", "http", "origin.test", "/s/k/bad-header", classify.Protocol,
			"origin.test:{port} (127.0.0.1:{port}): malformed MIME header", "malformed MIME header", 0},
		{"a 500", "http", "origin.test", "/s/k/500", classify.HTTPServerError,
			"origin.test:{port} (127.0.0.1:{port}): status 500 Internal Server Error", "status 500 Internal Server Error", 500},
		{"a status without a name", "http", "origin.test", "/s/k/599", classify.HTTPServerError,
			"origin.test:{port} (127.0.0.1:{port}): status 599", "status 599", 599},
		{"no head in time", "http", "origin.test", "/s/k/silent", classify.ResponseTimeout,
			"origin.test:{port} (127.0.0.1:{port}): response_timeout after 300ms", "response_timeout after 300ms", 0},
		{"a reset in the body", "http", "origin.test", "/s/k/200:size=5000,cut=100,how=rst", classify.BodyInterrupted,
			"origin.test:{port} (127.0.0.1:{port}): status 200 OK: read tcp: read: connection reset by peer", "read tcp 127.0.0.1:", 200},
		{"a redirect to a closed address", "http", "origin.test", "/s/k/302:to=http%3A%2F%2Fuser%3Apw%40127.0.0.9%2Fa%3Fb=c", classify.TargetBlocked,
			"origin.test:{port}: status 302 Found",
			"the target is forbidden by this server's egress policy: the address is not public, the operator can allow it with --egress-allow-cidr: redirect to http://127.0.0.9/a", 302},
		{"a redirect to a closed port", "http", "origin.test", "/s/k/302:to=http%3A%2F%2Fuser%3Apw%40other.test%3A81%2Fa%3Fb=c", classify.TargetBlocked,
			"origin.test:{port}: status 302 Found: redirect to other.test:81",
			"the target is forbidden by this server's egress policy: the port is not allowed, the operator can allow it with --egress-allow-port: redirect to http://other.test:81/a", 302},
		{"a hop that fails", "http", "origin.test", "/cross/k/302/refused/200", classify.ConnectRefused,
			"127.0.0.1:{other}: dial tcp: connect: connection refused", "dial tcp 127.0.0.1:{other}: connect: connection refused", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newDetailRig(t)
			_, port, _ := net.SplitHostPort(r.origin.Addr(row.listener))
			_, other, _ := net.SplitHostPort(r.origin.Addr("refused"))
			fill := strings.NewReplacer("{port}", port, "{resolver}", r.resolver, "{other}", other).Replace
			out := r.get(row.listener, row.host, row.path)
			if out.Failure == nil || out.Failure.Class != row.class {
				t.Fatalf("failure %+v, want %s", out.Failure, row.class)
			}
			if got, want := out.Failure.Detail, fill(row.detail); got != want && (row.class != classify.Protocol || !strings.HasPrefix(got, want)) {
				t.Errorf("detail %q\nwant   %q", got, want)
			}
			for _, secret := range []string{r.resolver, "127.0.0.9", "->"} {
				if strings.Contains(out.Failure.Detail, secret) {
					t.Errorf("detail %q names %s", out.Failure.Detail, secret)
				}
			}
			line := r.line("fetch finished")
			if got, _ := line["error"].(string); !strings.HasPrefix(got, fill(row.logged)) {
				t.Errorf("error of the log %q\nwant %q", got, fill(row.logged))
			}
			failed, err := url.Parse(out.Failure.URL)
			must(t, err)
			if line["error_url"] != urls.Redact(failed) {
				t.Errorf("error_url %v, want %s", line["error_url"], urls.Redact(failed))
			}
			if got, _ := line["error_status"].(float64); got != row.status {
				t.Errorf("error_status %v, want %v", got, row.status)
			}
		})
	}
}

// canned is an origin that answers the first request of each connection with the same bytes, and closes it.
// It returns its address.
func canned(t *testing.T, answer string) string {
	t.Helper()
	return serveConns(t, func(conn net.Conn, _ int) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, answer)
		}
	})
}

// TestDetailOfHostileOrigins checks that bytes from the origin are escaped and limited, and that an
// origin cannot make the secrets of a request appear in the log or at the caller.
func TestDetailOfHostileOrigins(t *testing.T) {
	t.Parallel()
	const token, key, query, cookie, provided = "hush-token-123", "hush-key-45678", "hush-query-999", "hush-cookie-77", "hush-provided-1"
	echo := strings.Join([]string{token, key, query, cookie, provided}, " and ")
	for _, row := range []struct{ name, answer, want string }{
		{"controls in a header line", "HTTP/1.1 200 OK\r\nX \x1b[2J\u202e\u009b \xff\r\n\r\n", `\\x1b[2J`},
		{"a long header line", "HTTP/1.1 200 OK\r\nbad" + strings.Repeat("x", 60<<10) + "\r\n\r\n", "…"},
		{"a header line that echoes the request", "HTTP/1.1 200 OK\r\nechoed " + echo + "\r\n\r\n", "[hidden] and [hidden] and [hidden] and [hidden] and [hidden]"},
		{"a secret where the text is truncated", "HTTP/1.1 200 OK\r\n" + strings.Repeat(token+" ", 140) + "\r\n\r\n", "[hidden] [hidden]"},
		{"a status line that echoes the request", "HTTP/1.1 " + echo + "\r\n\r\n", "[hidden]"},
		{"a secret that is a part of what replaces it", "HTTP/1.1 200 OK\r\nhidd " + strings.Repeat("hidd ", 9) + "\r\n\r\n", "[hidden] [hidden] [hidden]"},
		{"a first line that echoes the request", token + "\r\n\r\n", "[hidden]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			at := netip.MustParseAddrPort(canned(t, row.answer))
			r := newDetailRig(t, at.Port())
			req := get(t, fmt.Sprintf("http://origin.test:%d/path?q=%s", at.Port(), query))
			req.IdempotencyKey, req.Credentials = key, fixedCredentials(provided)
			req.Header = http.Header{"Authorization": {"Bearer " + token}, "Cookie": {"sid=" + cookie}, "X-Words": {strings.Repeat("hidd dden ", 9)}}
			out := r.client.Fetch(t.Context(), req, nil)
			if out.Failure == nil || out.Failure.Class != classify.Protocol {
				t.Fatalf("failure %+v, want PROTOCOL", out.Failure)
			}
			line := r.line("fetch finished")
			logged, _ := line["error"].(string)
			for what, text := range map[string]string{"detail": out.Failure.Detail, "log": logged} {
				if !strings.Contains(text, strings.ReplaceAll(row.want, `\\`, `\`)) {
					t.Errorf("%s %q, want %q in it", what, text, row.want)
				}
				if strings.Contains(text, "hush") {
					t.Errorf("%s %q contains a secret", what, text)
				}
				if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s %q has unprintable characters", what, text)
				}
			}
			if n := len(out.Failure.Detail); n > fetch.MaxDetailBytes {
				t.Errorf("detail of %d bytes, want %d at most", n, fetch.MaxDetailBytes)
			}
			if n := len(logged); n > 1<<10 {
				t.Errorf("error of %d bytes in the log, want 1 KiB at most", n)
			}
			if strings.Contains(r.lines.String(), "hush") {
				t.Errorf("the log contains a secret: %s", r.lines)
			}
		})
	}
}

// TestDetailOfHostileProxies checks that a proxy cannot make its password appear in the log or at
// the caller.
func TestDetailOfHostileProxies(t *testing.T) {
	t.Parallel()
	const password = "hush-pass/word"
	sent := base64.StdEncoding.EncodeToString([]byte("name:" + password))
	for _, row := range []struct{ name, answer, want string }{
		{"a status with the field that was sent", "HTTP/1.1 407 not Basic " + sent + "\r\n\r\n", "not Basic [hidden]"},
		{"a status with the password", "HTTP/1.1 407 not name:" + password + "\r\n\r\n", "not name:[hidden]"},
		{"a line that is not a header", "HTTP/1.1 200 OK\r\nechoed " + sent + "\r\n\r\n", "echoed [hidden]"},
		{"a part of the password stays", "HTTP/1.1 200 OK\r\nechoed pass\r\n\r\n", "echoed pass"},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(row.name+", "+scheme, func(t *testing.T) {
				t.Parallel()
				r := newDetailRig(t)
				proxy := mustParse(t, "http://"+canned(t, row.answer))
				proxy.User = url.UserPassword("name", password)
				r.use(fetch.Config{Proxy: proxy}, 80, 443)
				req := get(t, scheme+"://origin.test/")
				req.Policy.MaxAttempts = 1
				out := r.client.Fetch(t.Context(), req, nil)
				if out.Failure == nil {
					t.Fatal("no failure")
				}
				line := r.line("fetch finished")
				// To a tunnel the text of a status is an error; as the answer of an origin it is ignored.
				if logged, _ := line["error"].(string); !strings.Contains(logged, row.want) && !(scheme == "http" && strings.Contains(row.answer, "407")) {
					t.Errorf("log %q, want %q in it", logged, row.want)
				}
				for _, secret := range []string{password, sent} {
					if strings.Contains(out.Failure.Detail, secret) || strings.Contains(r.lines.String(), secret) {
						t.Errorf("detail %q or the log contains %q: %s", out.Failure.Detail, secret, r.lines)
					}
				}
			})
		}
	}
}

// fixedCredentials are sent to every origin.
type fixedCredentials string

// Covers implements fetch.Credentials.
func (fixedCredentials) Covers(*url.URL) bool { return true }

// Field implements fetch.Credentials.
func (c fixedCredentials) Field(context.Context) (name, value string, err error) {
	return "X-Api-Key", "Key " + string(c), nil
}

// Refresh implements fetch.Credentials.
func (fixedCredentials) Refresh(context.Context, string) error {
	return errors.New("the endpoint answers 500")
}

// TestRefreshLine checks that the log has the reason why a refresh failed, and the caller does not.
func TestRefreshLine(t *testing.T) {
	t.Parallel()
	r := newDetailRig(t)
	req := r.request("http", "/s/k/401")
	req.Credentials = fixedCredentials("hush-provided-1")
	out := r.client.Fetch(t.Context(), req, nil)
	if got, want := out.Failure.Detail, r.origin.Addr("http")+": status 401 Unauthorized"; got != want {
		t.Errorf("detail %q, want %q", got, want)
	}
	if got, want := r.line("fetch finished")["error"], "status 401 Unauthorized: refresh of the credential: the endpoint answers 500"; got != want {
		t.Errorf("error of the log %q, want %q", got, want)
	}
	if strings.Contains(r.lines.String(), "hush") {
		t.Errorf("the log contains a secret: %s", r.lines)
	}
}

// TestDetailThroughAProxy checks that details contain the status of a proxy that refuses to connect, but
// neither its address nor its text.
func TestDetailThroughAProxy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, scheme, want string }{
		{"that refuses a connection", "http", "origin.test:{port}: the proxy answers CONNECT with status 502 Bad Gateway"},
		{"that refuses a connection, with TLS", "https", "origin.test:{port}: the proxy answers CONNECT with status 502 Bad Gateway"},
		{"that does not exist", "", "origin.test:{port}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newDetailRig(t)
			if row.scheme == "" {
				r.use(fetch.Config{Proxy: &url.URL{Scheme: "http", User: url.UserPassword("user", "hush-password"), Host: r.origin.Addr("refused")}})
			} else {
				r.client = (&connectProxy{refuse: true}).serve(t, r.wire, row.scheme)
			}
			out := r.get("https1", "origin.test", "/s/k/200")
			_, port, _ := net.SplitHostPort(r.origin.Addr("https1"))
			if out.Failure == nil || out.Failure.Detail != strings.ReplaceAll(row.want, "{port}", port) {
				t.Errorf("failure %+v, want the detail %q", out.Failure, row.want)
			}
			if strings.Contains(r.lines.String(), "hush") {
				t.Errorf("the log contains a secret: %s", r.lines)
			}
		})
	}
}

// atOnce is a handler that notes which lines must be written at once.
type atOnce struct {
	slog.Handler

	lines []string
}

func (h *atOnce) Line(level slog.Level, text string, _ []slog.Attr, atOnce bool) {
	h.lines = append(h.lines, fmt.Sprintln(level, text, atOnce))
}

// TestLinesAtOnce checks that the line of a fetch that failed is written at once, and others may wait.
func TestLinesAtOnce(t *testing.T) {
	t.Parallel()
	r, h := newDetailRig(t), &atOnce{Handler: slog.NewJSONHandler(io.Discard, nil)}
	r.use(fetch.Config{Logger: slog.New(h)})
	for _, path := range []string{"/s/a/503/200", "/s/b/404", "/s/c/200"} {
		r.client.Fetch(t.Context(), r.request("http", path), nil)
	}
	want := []string{"INFO retrying fetch false\n", "INFO fetch finished false\n", "INFO fetch finished true\n", "INFO fetch finished false\n"}
	if diff := cmp.Diff(want, h.lines); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
}

// TestDetailOfADeadNameServer checks that only the log has the address of the name server.
func TestDetailOfADeadNameServer(t *testing.T) {
	t.Parallel()
	r := newDetailRig(t)
	dead := r.origin.Addr("refused")
	r.use(fetch.Config{NameServer: dead})
	out := r.get("http", "origin.test", "/s/k/200")
	_, port, _ := net.SplitHostPort(r.origin.Addr("http"))
	if got, want := out.Failure.Detail, "origin.test:"+port+": lookup: connection refused"; got != want {
		t.Errorf("detail %q, want %q", got, want)
	}
	if got, _ := r.line("fetch finished")["error"].(string); !strings.Contains(got, " on "+dead+": ") {
		t.Errorf("error of the log %q, want %s in it", got, dead)
	}
}
