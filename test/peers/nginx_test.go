package peers

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/conformance/origin"
	"fetchd/test/clitest"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
)

// patience limits operations that normally take no time.
const patience = 20 * time.Second

// nginx is a running nginx.
type nginx struct {
	*testing.T
	folder    string
	http, tls string // addresses
	marks     *int
	body      func(n int64) []byte
	roots     *x509.CertPool
}

// in returns n for a subtest.
func (n *nginx) in(t *testing.T) *nginx {
	c := *n
	c.T = t
	return &c
}

// config is a format for the folder, the user, and the plain and the TLS address.
const config = `
daemon off;
master_process off;
%[2]s
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 64; }
http {
  log_format seen '$msec $request_method $server_protocol "$http_range" $request_uri';
  access_log %[1]s/access.log seen;
  # A request is in the log before its answer can lead to the next one.
  lingering_close off;
  client_body_temp_path %[1]s/tmp; proxy_temp_path %[1]s/tmp; fastcgi_temp_path %[1]s/tmp; uwsgi_temp_path %[1]s/tmp; scgi_temp_path %[1]s/tmp;
  limit_req_zone $request_uri zone=slow:1m rate=1r/s;
  types { text/plain txt; image/png png; }
  root %[1]s/root;
  server {
    listen %[3]s;
    listen %[4]s ssl http2;
    ssl_certificate %[1]s/cert.pem;
    ssl_certificate_key %[1]s/key.pem;
    location /status/400 { return 400; }
    location /status/403 { return 403; }
    location /status/404 { return 404; }
    location /status/410 { return 410; }
    location /status/451 { return 451; }
    location /status/500 { return 500; }
    location /status/503 { return 503; }
    location /status/204 { return 204; }
    location /hour { add_header Retry-After 3600 always; return 429; }
    location /limited { limit_req zone=slow; limit_req_status 429; add_header Retry-After 1 always; alias %[1]s/root/500.txt; }
    location = /r/1 { return 302 /500.txt; }
    location ~ ^/r/2 { return 302 /r/1; }
    location ~ ^/r/3 { return 302 /r/2; }
    location ~ ^/r/4 { return 302 /r/3; }
    location ~ ^/r/5 { return 302 /r/4; }
    location ~ ^/r/6 { return 302 /r/5; }
    location = /loop/a { return 302 /loop/b; }
    location = /loop/b { return 302 /loop/a; }
    location = /post { return 303 /500.txt; }
    location = /ftp { return 302 ftp://127.0.0.1:1/; }
    location /coded/ { gzip on; gzip_types text/plain; gzip_min_length 1; alias %[1]s/root/; }
  }
}
`

// startNginx starts an nginx until the test ends.
func startNginx(t *testing.T) *nginx {
	t.Helper()
	rig.Long(t, 3*time.Minute)
	program := need.Program(t, "nginx", "nginx-light")
	n := &nginx{T: t, marks: new(int), folder: t.TempDir(), http: rig.FreeAddress(t, "127.0.0.1"), body: origin.New(origin.Config{}).Body}
	for n.tls = n.http; n.tls == n.http; {
		n.tls = rig.FreeAddress(t, "127.0.0.1")
	}
	n.files()
	_, n.roots = clitest.Certificate(t, n.folder)
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // other users cannot read the folder of a test
	}
	n.write("nginx.conf", fmt.Appendf(nil, config, n.folder, user, n.http, n.tls))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("nginx: %s", n.read("error.log"))
		}
	})
	startProgram(t, n.http, program, "-p", n.folder, "-c", filepath.Join(n.folder, "nginx.conf"))
	return n
}

func (n *nginx) write(name string, data []byte) {
	n.Helper()
	path := filepath.Join(n.folder, name)
	must.Succeed(n, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)))
}

func (n *nginx) read(name string) []byte {
	n.Helper()
	data, err := os.ReadFile(filepath.Join(n.folder, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Fatal(err)
	}
	return data
}

// files writes the files that nginx serves. One has the age that a scenario expects.
func (n *nginx) files() {
	n.Helper()
	for _, size := range []int64{0, 500, 5000} {
		n.write(fmt.Sprintf("root/%d.txt", size), n.body(size))
	}
	n.write("root/500.png", n.body(500))
	n.write("root/old.txt", n.body(500))
	old := time.Date(1994, time.November, 6, 8, 49, 37, 0, time.UTC)
	must.Succeed(n, os.Chtimes(filepath.Join(n.folder, "root/old.txt"), old, old))
}

// log returns the finished requests from nginx's log. It sends a request of its own
// and waits until the log has it, so that all earlier requests are there too.
func (n *nginx) log() []origin.Request {
	n.Helper()
	*n.marks++
	mark := fmt.Sprintf("/status/404?mark=%d", *n.marks)
	n.head(mark)
	rig.Until(n.Context(), n, "the mark is in the log", func() bool { return bytes.Contains(n.read("access.log"), []byte(mark+"\n")) })
	var requests []origin.Request
	for line := range strings.Lines(string(n.read("access.log"))) {
		if !strings.Contains(line, "?mark=") {
			requests = append(requests, n.request(line, len(requests)))
		}
	}
	return requests
}

// request parses a line. nginx's clock has steps of a millisecond or more, so each
// request is given a slightly later time than the one before.
func (n *nginx) request(line string, number int) origin.Request {
	n.Helper()
	const step = 5 * time.Millisecond
	fields := strings.Fields(line)
	seconds, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		n.Fatalf("nginx: log: %q: %v", line, err)
	}
	path, _, _ := strings.Cut(fields[len(fields)-1], "?")
	return origin.Request{Method: fields[1], Path: path, Protocol: fields[2], Header: http.Header{"Range": {strings.Trim(fields[3], `"`)}},
		Time: time.UnixMilli(int64(seconds * 1000)).Add(time.Duration(number) * step)}
}

// head requests a path on a new connection, and reads the head of the answer.
func (n *nginx) head(path string) {
	n.Helper()
	conn, err := net.Dial("tcp", n.http)
	must.Succeed(n, err)
	defer conn.Close()
	var answer bytes.Buffer
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, n.http); err != nil {
		n.Fatal(err)
	}
	buf := make([]byte, 4096)
	for !bytes.Contains(answer.Bytes(), []byte("\r\n\r\n")) {
		got, err := conn.Read(buf)
		answer.Write(buf[:got])
		if err != nil {
			n.Fatalf("nginx: %s: %v after %q", path, err, answer.Bytes())
		}
	}
}

// peer returns nginx as an origin.
func (n *nginx) peer() *peer {
	return &peer{bases: map[string]string{"http": "http://" + n.http, "http-other": "http://" + n.http, "https": "https://" + n.tls},
		body: n.body, roots: n.roots, since: func(mark int) []origin.Request { return n.log()[mark:] }, count: func() int { return len(n.log()) }}
}

// TestNginx uses nginx, which many origins run.
func TestNginx(t *testing.T) {
	n := startNginx(t)
	p := n.peer()
	play(t, p, []row{
		{scenario: "200", path: "/5000.txt"},
		{scenario: "204", path: "/status/204"},
		{scenario: "400", path: "/status/400"},
		{scenario: "403", path: "/status/403"},
		{scenario: "404", path: "/status/404"},
		{scenario: "410", path: "/status/410"},
		{scenario: "451", path: "/status/451"},
		{scenario: "503 for ever", path: "/status/503"},
		{scenario: "429 with an hour", path: "/hour"},
		{scenario: "304 by date", path: "/old.txt", anyTag: true},
		{scenario: "5 redirects", path: "/r/5", final: "/500.txt"},
		{scenario: "6 redirects", path: "/r/6", final: "/r/1"},
		{scenario: "redirect loop", path: "/loop/a", final: "/loop/b"},
		{scenario: "redirect to another scheme", path: "/ftp"},
		{scenario: "POST after 303", path: "/post", final: "/500.txt", anyTag: true},
		{scenario: "gzip", path: "/coded/5000.txt"},
		{scenario: "empty body", path: "/0.txt"},
		{scenario: "wrong media type", path: "/500.png"},
		{scenario: "body too large", path: "/5000.txt"},
		{scenario: "wrong digest", path: "/500.txt"},
	})
	n.head("/limited") // the first request passes; the next one exceeds the rate
	play(t, p, []row{{scenario: "429 with seconds", path: "/limited"}})
}
