package peers

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/stores"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/wait"
	"fetchd/warc"
)

// proxyPassword is the password of the user "name" at both proxies.
const proxyPassword = "hush-pass"

// startProgram starts a server until the test ends, and waits until it listens.
func startProgram(t *testing.T, address, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", program, said.Bytes())
		}
	})
	if wait.Until(t.Context(), 5*time.Millisecond, func() bool {
		conn, err := net.DialTimeout("tcp", address, patience)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}) != nil {
		t.Fatalf("%s does not listen", program)
	}
}

// startTinyproxy starts an HTTP proxy, and returns its address.
func startTinyproxy(t *testing.T) string {
	t.Helper()
	program, address := need.Program(t, "tinyproxy", "tinyproxy"), rig.FreeAddress(t, "127.0.0.1")
	host, port, _ := net.SplitHostPort(address)
	file := filepath.Join(t.TempDir(), "tinyproxy.conf")
	text := fmt.Sprintf("Listen %s\nPort %s\nTimeout 30\nMaxClients 20\nLogLevel Error\nBasicAuth name %s\n", host, port, proxyPassword)
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	startProgram(t, address, program, "-d", "-c", file)
	return address
}

// startMicrosocks starts a SOCKS5 proxy, and returns its address.
func startMicrosocks(t *testing.T) string {
	t.Helper()
	program, address := need.Program(t, "microsocks", "microsocks"), rig.FreeAddress(t, "127.0.0.1")
	host, port, _ := net.SplitHostPort(address)
	startProgram(t, address, program, "-i", host, "-p", port, "-u", "name", "-P", proxyPassword)
	return address
}

// throughProxy starts a service that reaches nginx through a proxy, and records in a folder.
func throughProxy(t *testing.T, n *nginx, proxy *url.URL) (client pb.FetchServiceClient, folder string) {
	t.Helper()
	folder = t.TempDir()
	file := filepath.Join(t.TempDir(), "stores.yaml")
	if err := os.WriteFile(file, []byte("stores:\n  pages: {url: 'warc+file://"+folder+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := stores.ReadFile(file, new(stores.Set))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = set.Close(t.Context()) })
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.Proxy, c.Fetch.RootCAs, c.Stores = proxy, n.roots, set
		for _, address := range []string{n.http, n.tls} {
			c.Fetch.Egress.AllowPorts = append(c.Fetch.Egress.AllowPorts, netip.MustParseAddrPort(address).Port())
		}
	}}).Client, folder
}

// refusal is how a fetch of an http or https URL ends if the proxy refuses a user. Nil means no user.
type refusal struct {
	scheme string
	user   *url.Userinfo
	want   string
}

// TestProxies fetches from nginx through proxies that many use: in absolute form and by CONNECT through
// tinyproxy, and through microsocks (SOCKS5).
func TestProxies(t *testing.T) {
	n := startNginx(t)
	wrong := url.UserPassword("name", "wrong")
	for _, p := range []struct {
		name, scheme string
		start        func(*testing.T) string
		refused      []refusal
	}{
		{"tinyproxy", "http", startTinyproxy, []refusal{
			{"http", nil, "ERROR_CLASS_HTTP_CLIENT_ERROR " + n.http + ": status 407 Proxy Authentication Required"},
			{"https", nil, "ERROR_CLASS_TARGET_BLOCKED " + n.tls + ": the proxy answers CONNECT with status 407 Proxy Authentication Required"},
			// To a wrong password it answers as an origin would.
			{"http", wrong, "ERROR_CLASS_AUTH_REQUIRED " + n.http + ": status 401 Unauthorized"},
			{"https", wrong, "ERROR_CLASS_TARGET_BLOCKED " + n.tls + ": the proxy answers CONNECT with status 401 Unauthorized"},
		}},
		{"microsocks", "socks5", startMicrosocks, []refusal{
			{"http", nil, "ERROR_CLASS_TARGET_BLOCKED " + n.http},
			{"https", wrong, "ERROR_CLASS_TARGET_BLOCKED " + n.tls},
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			n := n.in(t)
			at := &url.URL{Scheme: p.scheme, User: url.UserPassword("name", proxyPassword), Host: p.start(t)}
			client, folder := throughProxy(t, n, at)
			for _, row := range []struct {
				name, scheme, host string
				record             bool
				alpn               string
			}{
				{"http", "http", n.http, false, ""},
				{"http, recorded", "http", n.http, true, ""},
				{"https", "https", n.tls, false, "h2"},
				{"https, recorded", "https", n.tls, true, "http/1.1"},
			} {
				t.Run(row.name, func(t *testing.T) {
					n := n.in(t)
					mark := len(n.log())
					in := &pb.FetchRequest{Url: row.scheme + "://" + row.host + "/5000.txt", EventLevel: pb.EventLevel_EVENT_LEVEL_ALL}
					if row.record {
						in.RecordPolicy = &pb.RecordPolicy{Store: "pages"}
					}
					for range 2 { // the second fetch on the same connection, if the proxy keeps it
						o := unary(t, client, in)
						if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || !bytes.Equal(o.GetInlineBody(), n.body(5000)) {
							t.Fatalf("%s, %v, %d bytes", o.GetKind(), o.GetError(), len(o.GetInlineBody()))
						}
						if x := o.GetHops()[0].GetExchange(); x.GetAlpnProtocol() != row.alpn || x.GetRemoteAddress() != "" || (x.GetCertificate() != nil) != (row.alpn != "") {
							t.Errorf("%v, want ALPN %q, no address, and a certificate only with TLS", x, row.alpn)
						}
						if row.record {
							wantRecords(t, folder, o.GetRecords(), row.host, n.body(5000))
						}
					}
					if seen := n.log()[mark:]; len(seen) != 2 {
						t.Errorf("nginx has seen %v, want 2 requests", seen)
					}
				})
			}
			for _, row := range p.refused {
				t.Run(fmt.Sprintf("%s, user %v", row.scheme, row.user), func(t *testing.T) {
					n := n.in(t)
					address := map[string]string{"http": n.http, "https": n.tls}[row.scheme]
					refused, _ := throughProxy(t, n, &url.URL{Scheme: p.scheme, User: row.user, Host: at.Host})
					mark := len(n.log())
					e := unary(t, refused, &pb.FetchRequest{Url: row.scheme + "://" + address + "/500.txt", RetryPolicy: &pb.RetryPolicy{MaxAttempts: new(int32(1))}}).GetError()
					if got := e.GetErrorClass().String() + " " + e.GetDetail(); got != row.want {
						t.Errorf("%s, want %s", got, row.want)
					}
					if seen := n.log()[mark:]; len(seen) != 0 {
						t.Errorf("nginx has seen %v, want nothing", seen)
					}
				})
			}
		})
	}
}

// unary runs a fetch, and returns its outcome.
func unary(t *testing.T, client pb.FetchServiceClient, in *pb.FetchRequest) *pb.FetchOutcome {
	t.Helper()
	resp, err := client.FetchUnary(t.Context(), in)
	must.Succeed(t, err)
	return resp.GetOutcome()
}

// wantRecords checks that a fetch of /5000.txt was recorded as nginx has seen it: without the proxy.
func wantRecords(t *testing.T, folder string, places []*pb.WarcRecord, host string, body []byte) {
	t.Helper()
	// tinyproxy closes a connection without a Connection: close before. A request that was sent meanwhile is an
	// attempt (N4) whose only record is its request.
	var types []pb.WarcType
	for _, at := range places {
		types = append(types, at.GetType())
	}
	if n := len(places); n < 2 || types[n-1] != pb.WarcType_WARC_TYPE_RESPONSE || places[n-1].GetAttempt() != int32(n-1) ||
		slices.ContainsFunc(types[:n-1], func(kind pb.WarcType) bool { return kind != pb.WarcType_WARC_TYPE_REQUEST }) {
		t.Fatalf("records %v, want a request of each attempt, and the response of the last", places)
	}
	file := filepath.Join(folder, places[0].GetFile())
	content, err := os.ReadFile(file + ".open")
	if err != nil {
		content, err = os.ReadFile(file)
	}
	must.Succeed(t, err)
	var blocks [][]byte
	for _, at := range places {
		record, err := warc.NewReader(bytes.NewReader(content[at.GetOffsetBytes():][:at.GetLengthBytes()]), warc.ReaderOptions{Verify: true}).Next()
		must.Succeed(t, err)
		block, err := io.ReadAll(record.Block)
		must.Succeed(t, err)
		if record.IPAddress.IsValid() {
			t.Errorf("%s: WARC-IP-Address %s, want none", record.Type, record.IPAddress)
		}
		blocks = append(blocks, block)
	}
	if want := "GET /5000.txt HTTP/1.1\r\nHost: " + host + "\r\n"; !bytes.HasPrefix(blocks[0], []byte(want)) {
		t.Errorf("request %q, want %q first", blocks[0], want)
	}
	for _, secret := range []string{"Proxy-Authorization", proxyPassword, base64.StdEncoding.EncodeToString([]byte("name:" + proxyPassword))} {
		if slices.ContainsFunc(blocks, func(block []byte) bool { return bytes.Contains(block, []byte(secret)) }) {
			t.Errorf("the records contain %q", secret)
		}
	}
	if response := blocks[len(blocks)-1]; !bytes.HasSuffix(response, body) {
		t.Errorf("response %.200q, want the body at its end", response)
	}
}
