package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/signatures"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// output is a writer that can be read while it is written.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	written chan struct{} // closed by the next write
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written != nil {
		close(o.written)
		o.written = nil
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	text, _ := o.look()
	return text
}

// look returns what is written so far, and a channel that reports more output.
func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = make(chan struct{})
	}
	return o.buf.String(), o.written
}

// await returns the first line after the first n bytes that holds text, and where
// it ends.
func (o *output) await(t *testing.T, n int, text string) (line string, end int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		all, more := o.look()
		if at := strings.Index(all[n:], text); at >= 0 {
			if length := strings.IndexByte(all[n+at:], '\n'); length >= 0 {
				begin := strings.LastIndexByte(all[:n+at], '\n') + 1
				return all[begin : n+at+length], n + at + length + 1
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("the log has no %q after byte %d:\n%s", text, n, all)
		}
	}
}

// service is a run of the command that serves.
type service struct {
	*testing.T
	grpc, http string // addresses
	log        *output
	seen       *int   // bytes of the log that are read
	stop       func() // stops the command, which must end without an error
	hangup     chan os.Signal
	look       chan time.Time
}

// in returns s for a subtest.
func (s *service) in(t *testing.T) *service {
	c := *s
	c.T = t
	return &c
}

// start runs the command until the test ends. Nothing in its log may be a key, or contain hush.
func start(t *testing.T, args ...string) *service {
	t.Helper()
	s := &service{T: t, log: new(output), seen: new(int), hangup: make(chan os.Signal), look: make(chan time.Time)}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan int, 1)
	args = append([]string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--drain-time", "10s"}, args...)
	go func() {
		done <- run(ctx, program{args: args, stdout: new(output), stderr: s.log, hangup: s.hangup, look: s.look})
	}()
	s.stop = sync.OnceFunc(func() {
		stop()
		if code := <-done; code != cli.ExitOK {
			t.Errorf("exit code %d, want 0; log:\n%s", code, s.log)
		}
		if leak := signatures.Leaked(s.log.String()); leak != "" || strings.Contains(s.log.String(), "hush") {
			t.Errorf("the key %q, or another secret, is in the log:\n%s", leak, s.log)
		}
	})
	t.Cleanup(s.stop)
	s.grpc, s.http = addresses(t, s.await(`"msg":"serving"`))
	return s
}

// addresses returns the addresses in a log line.
func addresses(t *testing.T, line string) (grpc, http string) {
	t.Helper()
	var serving struct {
		GRPC string `json:"grpc_addr"`
		HTTP string `json:"http_addr"`
	}
	must(t, json.Unmarshal([]byte(line), &serving))
	return serving.GRPC, serving.HTTP
}

// command runs the command until it ends by itself.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log output
	code = run(t.Context(), program{args: args, stdout: &out, stderr: &log})
	return code, out.String(), log.String()
}

// ask calls an HTTP port, with POST if there is a body, and reads the answer. A cfg means TLS, and
// then HTTP/2.
func ask(ctx context.Context, cfg *tls.Config, address, path, body string, authorization ...string) (code int, text string, err error) {
	method, scheme := http.MethodGet, "http://"
	if body != "" {
		method = http.MethodPost
	}
	if cfg != nil {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Authorization"] = authorization
	resp, err := (&http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, ForceAttemptHTTP2: true}).RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if cfg != nil && resp.ProtoMajor != 2 {
		err = fmt.Errorf("HTTP over TLS speaks %s, want HTTP/2", resp.Proto)
	}
	return resp.StatusCode, string(raw), err
}

// await reads the log up to a line.
func (s *service) await(text string) string {
	s.Helper()
	line, end := s.log.await(s.T, *s.seen, text)
	*s.seen = end
	return line
}

// reload sends a hangup and awaits a line.
func (s *service) reload(want string) string {
	s.Helper()
	s.hangup <- syscall.SIGHUP
	return s.await(want)
}

// dial returns a client; cfg nil is one that speaks plaintext.
func (s *service) dial(cfg *tls.Config, more ...grpc.DialOption) pb.FetchServiceClient {
	s.Helper()
	secured := insecure.NewCredentials()
	if cfg != nil {
		secured = credentials.NewTLS(cfg)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.grpc, append(more, grpc.WithTransportCredentials(secured))...)
	must(s, err)
	s.Cleanup(func() { _ = conn.Close() })
	return pb.NewFetchServiceClient(conn)
}

// call asks for what needs no origin.
func call(ctx context.Context, c pb.FetchServiceClient) error {
	_, err := c.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 503}})
	return err
}

// authority signs certificates.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// in returns a for a subtest.
func (a *authority) in(t *testing.T) *authority {
	c := *a
	c.T = t
	return &c
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{t, cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// wish is what a certificate shall be. The zero value is one of a server and a
// client at 127.0.0.1.
type wish struct {
	dns, uri, email string
	expired         bool
	serverOnly      bool
	ends            time.Time // zero: in an hour
	serial          int64
}

// sign makes a certificate and its key, in PEM.
func (a *authority) sign(w wish) (cert, key []byte) {
	a.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(2 + w.serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if w.dns != "" {
		template.DNSNames = []string{w.dns}
	}
	if w.uri != "" {
		u, err := url.Parse(w.uri)
		must(a, err)
		template.URIs = []*url.URL{u}
	}
	if w.email != "" {
		template.EmailAddresses = []string{w.email}
	}
	if w.expired {
		template.NotAfter = time.Now().Add(-time.Minute)
	}
	if !w.ends.IsZero() {
		template.NotAfter = w.ends
	}
	if w.serverOnly {
		template.ExtKeyUsage = template.ExtKeyUsage[:1]
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	must(a, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(a, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// client is a caller that trusts the authority, and shows a certificate where w
// is given.
func (a *authority) client(w *wish) *tls.Config {
	a.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	cfg.RootCAs.AddCert(a.cert)
	if w != nil {
		pair, err := tls.X509KeyPair(a.sign(*w))
		must(a, err)
		// Whatever the server says that it takes.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg
}

// folder holds the files of a service.
type folder struct {
	*testing.T
	dir string
}

// in returns f for a subtest.
func (f *folder) in(t *testing.T) *folder {
	c := *f
	c.T = t
	return &c
}

func newFolder(t *testing.T) *folder { return &folder{t, t.TempDir()} }

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// write puts a file in place at once, as those who replace certificates do.
func (f *folder) write(name string, text []byte) string {
	f.Helper()
	must(f, os.WriteFile(f.path(name+".new"), text, 0o600))
	must(f, os.Rename(f.path(name+".new"), f.path(name)))
	return f.path(name)
}

// certify writes the service's certificate and key, and returns the flags for
// them.
func (f *folder) certify(a *authority, w wish) []string {
	f.Helper()
	cert, key := a.sign(w)
	return []string{"--tls-cert-file", f.write("cert.pem", cert), "--tls-key-file", f.write("key.pem", key)}
}

func codeOf(err error) codes.Code { return status.Code(err) }

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
