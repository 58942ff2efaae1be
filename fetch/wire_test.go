package fetch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/test/selfsigned"
)

// wire is a client and an origin on loopback, with the events and the requests of their fetches.
type wire struct {
	*testing.T
	origin *origin.Origin
	client *fetch.Client
	key    string
}

// in returns w for a subtest.
func (w *wire) in(t *testing.T) *wire {
	c := *w
	c.T = t
	return &c
}

// newWire starts an origin and a client that may reach it.
func newWire(t *testing.T) *wire {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	must(t, err)
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	c := newClient(t, fetch.Config{
		RootCAs: o.CA(),
		Egress:  fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports(t, o)},
	})
	return &wire{T: t, origin: o, client: c}
}

// newClient returns a client that is closed at the end of the test.
func newClient(t testing.TB, cfg fetch.Config) *fetch.Client {
	t.Helper()
	c, err := fetch.New(cfg)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// unrestricted lets a client reach every target.
var unrestricted = fetch.Egress{Unrestricted: true}

// get returns a GET of a URL.
func get(t testing.TB, raw string) *fetch.Request {
	t.Helper()
	r := fetch.NewRequest(classify.Standard)
	r.URL = mustParse(t, raw)
	return r
}

func mustParse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := urls.Parse(raw)
	if err != nil {
		t.Fatalf("Parse(%q): %v", raw, err)
	}
	return u
}

// classOf returns the class of a failure, and none without one.
func classOf(f *fetch.Failure) classify.Class {
	if f == nil {
		return classify.NoClass
	}
	return f.Class
}

// serveConns calls serve for each connection to a port, with its number. It returns the address of the port.
// The connections are closed after serve, and at the end of the test.
func serveConns(t *testing.T, serve func(conn net.Conn, n int)) string {
	t.Helper()
	l := listenOn(t, "127.0.0.1:0", true)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	serving.Go(func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn, n)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return l.Addr().String()
}

var listeners = []string{"http", "https", "https1", "h2fault", "tls-expired", "tls-wrong-name", "tls-unknown-ca",
	"tls-cut", "tls-reset", "tls-plain", "tls-garbage", "tls-silent", "tls-old", "mtls",
	"tcp-reset", "tcp-close", "tcp-silent", "tcp-noread", "http-other", "refused"}

func ports(t *testing.T, o *origin.Origin) []uint16 {
	t.Helper()
	var all []uint16
	for _, name := range listeners {
		_, port, _ := strings.Cut(o.Addr(name), ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatalf("listener %s: address %q", name, o.Addr(name))
		}
		all = append(all, uint16(n))
	}
	return all
}

// request returns a GET of path on a listener that is retried without delay.
func (w *wire) request(listener, path string) *fetch.Request {
	w.Helper()
	r := get(w, w.origin.URL(listener, path))
	r.Policy.BaseDelay = 0
	if parts := strings.Split(path, "/"); len(parts) > 2 {
		w.key = parts[2]
	}
	return r
}

// result is an outcome with the events that led to it.
type result struct {
	*fetch.Outcome
	finished []fetch.AttemptFinished
	body     []byte
	order    []string

	redirected http.Header // of the last RedirectFollowed
}

// fetch runs a fetch and compares its exchanges, attempts and hops with the origin's log.
func (w *wire) fetch(r *fetch.Request) result {
	w.Helper()
	before := len(w.origin.Requests(w.key))
	res := w.run(context.Background(), r)
	seen := w.origin.Requests(w.key)[before:]
	if len(seen) != res.Exchanges {
		w.Errorf("%d exchanges reported, the origin saw %d", res.Exchanges, len(seen))
	}
	if r.Events == fetch.OutcomeOnly {
		return res
	}
	var reported, saw []string // method and path of every request, in order
	for _, f := range res.finished {
		for _, h := range f.Hops {
			u, err := url.Parse(h.URL)
			must(w, err)
			if h.Exchange.Sent {
				reported = append(reported, h.Method+" "+u.EscapedPath())
			}
		}
	}
	for _, q := range seen {
		saw = append(saw, q.Method+" "+q.Path)
	}
	if !slices.Equal(reported, saw) {
		w.Errorf("reported %q\nthe origin saw %q", reported, saw)
	}
	return res
}

func (w *wire) run(ctx context.Context, r *fetch.Request) result {
	w.Helper()
	var res result
	res.Outcome = w.client.Fetch(ctx, r, func(e fetch.Event) error {
		switch e := e.(type) {
		case fetch.AttemptStarted:
			res.order = append(res.order, "started")
		case fetch.RedirectFollowed:
			res.order, res.redirected = append(res.order, "redirect"), e.Hop.Header
		case fetch.ResponseStarted:
			res.order = append(res.order, "response")
		case fetch.BodyChunk:
			if e.Offset != int64(len(res.body)) {
				w.Errorf("chunk at offset %d, want %d", e.Offset, len(res.body))
			}
			res.order, res.body = append(res.order, "chunk"), append(res.body, e.Data...)
		case fetch.AttemptFinished:
			res.order, res.finished = append(res.order, "finished"), append(res.finished, e)
		}
		return nil
	})
	res.check(w.T)
	return res
}

// check checks what every fetch has in common.
func (res *result) check(t *testing.T) {
	t.Helper()
	if len(res.finished) != res.Attempts && slices.Contains(res.order, "started") {
		t.Errorf("attempts: %d finished, the outcome says %d", len(res.finished), res.Attempts)
	}
	exchanges := 0
	for i, f := range res.finished {
		if f.Attempt != i+1 {
			t.Errorf("attempt %d is numbered %d", i+1, f.Attempt)
		}
		for _, h := range f.Hops {
			if h.Exchange.Sent {
				exchanges++
			}
		}
		if retried := f.Decision.Verdict == classify.Retry; retried != (i+1 < len(res.finished)) && res.StopReason != classify.Stopped {
			t.Errorf("attempt %d: verdict %s, %d attempts in all", f.Attempt, f.Decision.Verdict, len(res.finished))
		}
	}
	if len(res.finished) > 0 && exchanges != res.Exchanges {
		t.Errorf("exchanges: %d over all hops, the outcome says %d", exchanges, res.Exchanges)
	}
	if (res.Failure != nil) != (res.Kind == classify.Failed) {
		t.Errorf("kind %s with failure %+v", res.Kind, res.Failure)
	}
}

// soon shortens the time limits, for rows in which the origin is silent.
func soon(r *fetch.Request) {
	r.HeaderTimeout, r.IdleTimeout = 300*time.Millisecond, 300*time.Millisecond
}

// patient lengthens the time limits, for rows in which the origin codes a long body before it answers:
// with the race detector that takes most of a second of CPU.
func patient(r *fetch.Request) {
	r.HeaderTimeout, r.AttemptTimeout, r.TotalTimeout = 5*time.Minute, 5*time.Minute, 10*time.Minute
}

// TestErrorClasses commits every fault and checks its class: faults of the status and faults of the
// connection.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, path string
		class                classify.Class
		phase                classify.Phase
		attempts, exchanges  int
		change               func(*fetch.Request)
	}{
		{"refused", "refused", "/", classify.ConnectRefused, classify.PhaseConnect, 3, 0, nil},
		{"reset on accept", "tcp-reset", "/", classify.ConnectionReset, 255, 3, -1, nil},
		{"closed on accept", "tcp-close", "/", classify.ConnectionReset, 255, 3, -1, nil},
		{"silent after accept", "tcp-silent", "/", classify.ResponseTimeout, classify.PhaseProcessing, 3, 3, soon},
		{"certificate expired", "tls-expired", "/", classify.TLSCertificate, classify.PhaseTLS, 1, 0, nil},
		{"certificate of another name", "tls-wrong-name", "/", classify.TLSCertificate, classify.PhaseTLS, 1, 0, nil},
		{"certificate of an unknown authority", "tls-unknown-ca", "/", classify.TLSCertificate, classify.PhaseTLS, 1, 0, nil},
		{"handshake interrupted", "tls-cut", "/", classify.TLSHandshake, classify.PhaseTLS, 3, 0, nil},
		{"handshake reset", "tls-reset", "/", classify.TLSHandshake, classify.PhaseTLS, 3, 0, nil},
		{"plain HTTP on a TLS port", "tls-plain", "/", classify.TLSHandshake, classify.PhaseTLS, 3, 0, nil},
		{"garbage on a TLS port", "tls-garbage", "/", classify.TLSHandshake, classify.PhaseTLS, 3, 0, nil},
		{"TLS 1.0 only", "tls-old", "/", classify.TLSHandshake, classify.PhaseTLS, 3, 0, nil},
		{"handshake not answered", "tls-silent", "/", classify.ConnectTimeout, classify.PhaseTLS, 3, 0,
			func(r *fetch.Request) { r.ConnectTimeout = 200 * time.Millisecond }},
		{"handshake interrupted in DOWNLOAD", "tls-cut", "/", classify.TLSHandshake, classify.PhaseTLS, 1, 0,
			func(r *fetch.Request) { r.Policy.RetryTLSHandshake = false }},
		{"reset before the head", "http", "/s/k1/reset:at=before-head", classify.ConnectionReset, classify.PhaseProcessing, 3, 3, nil},
		{"closed before the head", "http", "/s/k2/fin:at=before-head", classify.ConnectionReset, classify.PhaseProcessing, 3, 3, nil},
		{"reset in the head", "http", "/s/k3/reset:at=in-head", classify.ConnectionReset, classify.PhaseProcessing, 3, 3, nil},
		{"closed in the head", "http", "/s/k4/fin:at=in-head", classify.ConnectionReset, classify.PhaseProcessing, 3, 3, nil},
		{"reset in the body", "http", "/s/k5/reset:at=in-body,after=100", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"closed in the body", "http", "/s/k6/fin:at=in-body,after=100", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"request not read", "tcp-noread", "/", classify.WriteTimeout, classify.PhaseRequest, 3, -1, func(r *fetch.Request) {
			soon(r)
			r.Method, r.Body = "PUT", make([]byte, 16<<20)
		}},
		{"no answer", "http", "/s/k7/silent", classify.ResponseTimeout, classify.PhaseProcessing, 3, 3, soon},
		{"half a head", "http", "/s/k8/half-head", classify.ResponseTimeout, classify.PhaseProcessing, 3, 3, soon},
		{"garbage without a line end", "http", "/s/k9/garbage", classify.ConnectionReset, classify.PhaseProcessing, 3, 3, nil},
		{"bad status line", "http", "/s/k10/bad-status-line", classify.Protocol, classify.PhaseProcessing, 1, 1, nil},
		{"bad header", "http", "/s/k11/bad-header", classify.Protocol, classify.PhaseProcessing, 1, 1, nil},
		{"huge head", "http", "/s/k12/200:head-size=100000", classify.Protocol, classify.PhaseProcessing, 1, 1, nil},
		{"101", "http", "/s/k13/switch", classify.Protocol, classify.PhaseProcessing, 1, 1, nil},
		{"000", "http", "/s/k140/000", classify.Protocol, classify.PhaseProcessing, 1, 1, nil},
		{"600", "http", "/s/k14/600", classify.Protocol, classify.PhaseProcessing, 1, 1, nil},
		{"body stalls", "http", "/s/k15/200:size=1000,stall=100", classify.BodyTimeout, classify.PhaseTransfer, 3, 3,
			func(r *fetch.Request) { r.IdleTimeout = 300 * time.Millisecond }}, // only: the head must be in time
		{"body short of its length", "http", "/s/k16/200:size=100,length=200", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"bad chunk size", "http", "/s/k17/200:size=100,chunk-fault=bad-size", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"no last chunk", "http", "/s/k18/200:size=100,chunk-fault=no-last", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"chunk without its end", "http", "/s/k19/200:size=100,chunk-fault=bad-crlf", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"gzip cut", "http", "/s/k20/200:size=10000,coding=gzip,coding-cut=50", classify.Undecodable, classify.PhaseTransfer, 1, 1, nil},
		{"gzip that is invalid", "http", "/s/k21/200:size=100,coding-lie=gzip", classify.Undecodable, classify.PhaseTransfer, 1, 1, nil},
		{"br cut", "http", "/s/k22/200:size=10000,coding=br,coding-cut=50", classify.Undecodable, classify.PhaseTransfer, 1, 1, nil},
		{"zstd cut", "http", "/s/k23/200:size=10000,coding=zstd,coding-cut=50", classify.Undecodable, classify.PhaseTransfer, 1, 1, nil},
		{"unknown coding", "http", "/s/k24/200:size=100,coding-lie=compress", classify.Undecodable, classify.PhaseTransfer, 1, 1, nil},
		{"gzip and a broken connection", "http", "/s/k25/200:size=10000,coding=gzip,cut=50", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"bomb", "http", "/s/k26/200:bomb=4000000,coding=gzip", classify.BodyTooLarge, classify.PhaseTransfer, 1, 1, nil},
		{"503", "http", "/s/k27/503", classify.HTTPServerError, classify.PhaseProcessing, 3, 3, nil},
		{"404", "http", "/s/k28/404", classify.HTTPClientError, classify.PhaseProcessing, 1, 1, nil},
		{"401", "http", "/s/k29/401", classify.AuthRequired, classify.PhaseProcessing, 1, 1, nil},
		{"403", "http", "/s/k30/403", classify.Forbidden, classify.PhaseProcessing, 1, 1, nil},
		{"304 unasked", "http", "/s/k31/304", classify.UnexpectedNotModified, classify.PhaseProcessing, 1, 1, nil},
		{"408", "http", "/s/k32/408", classify.RequestTimeout, classify.PhaseProcessing, 1, 1, nil},
		{"429", "http", "/s/k33/429", classify.RateLimited, classify.PhaseProcessing, 3, 3, nil},
		{"h2 stream reset before the head", "h2fault", "/s/k34/h2-rst:code=2,at=before-head", classify.ConnectionReset, classify.PhaseProcessing, 3, 3, nil},
		{"h2 stream reset in the body", "h2fault", "/s/k35/h2-rst:code=2,at=in-body,after=100", classify.BodyInterrupted, classify.PhaseTransfer, 3, 3, nil},
		{"h2 goaway with an error", "h2fault", "/s/k36/h2-goaway:code=2,last=0", classify.ConnectionReset, classify.PhaseProcessing, 3, -1, nil},
		{"h2 goaway always", "h2fault", "/s/k37/h2-goaway-forever", classify.ConnectionReset, 255, 3, -1, nil},
		{"h2 huge head", "h2fault", "/s/k38/h2-huge-head:size=100000", classify.Protocol, classify.PhaseProcessing, 1, -1, nil},
		{"h2 frame that is too long", "h2fault", "/s/k40/h2-bad-frame:fault=oversize", classify.Protocol, 255, 1, -1, nil},
		{"h2 bad frame", "h2fault", "/s/k39/h2-bad-frame", classify.Protocol, 255, 1, -1, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request(row.listener, row.path)
			if row.change != nil {
				row.change(r)
			}
			res := w.run(t.Context(), r)
			if res.Failure == nil {
				t.Fatalf("kind %s, want class %s", res.Kind, row.class)
			}
			reason := map[string]string{"tls-expired": "certificate_expired", "tls-wrong-name": "certificate_wrong_name", "tls-unknown-ca": "certificate_unknown_authority"}[row.listener]
			if f := res.Failure; f.Class != row.class || (reason != "" || f.Class == classify.ConnectRefused) && f.Reason != reason {
				t.Errorf("class %s (%s), want %s (%s)", f.Class, f.Reason, row.class, reason)
			}
			if int(row.phase) < 200 && res.Failure.Phase != row.phase {
				t.Errorf("phase %s, want %s", res.Failure.Phase, row.phase)
			}
			if res.Attempts != row.attempts {
				t.Errorf("attempts %d, want %d", res.Attempts, row.attempts)
			}
			if row.exchanges >= 0 && res.Exchanges != row.exchanges {
				t.Errorf("exchanges %d, want %d", res.Exchanges, row.exchanges)
			}
			if w.key != "" && row.exchanges >= 0 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				_, err := w.origin.Await(ctx, w.key, res.Exchanges) // it may read a request after the fetch has given it up
				if saw := len(w.origin.Requests(w.key)); err != nil || saw != res.Exchanges {
					t.Errorf("%d exchanges reported, the origin saw %d", res.Exchanges, saw)
				}
			}
		})
	}
}

// TestClientCertificateWanted checks the class of a TLS 1.3 origin that demands a client
// certificate. It refuses after the client has finished its handshake, so its alert may be lost.
func TestClientCertificateWanted(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{"no", "http", "https", "socks5"} {
		t.Run(proxy+" proxy", func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			switch proxy {
			case "http", "https":
				w.client = (&connectProxy{target: w.origin.Addr("mtls")}).serve(t, w, proxy)
			case "socks5":
				w.client = throughProxy(t, w, "socks5://"+socksProxy(t, w.origin.Addr("mtls")), w.origin.CA())
			}
			res := w.run(t.Context(), w.request("mtls", "/s/mtls/200"))
			if res.Failure == nil || res.Failure.Class != classify.TLSHandshake {
				t.Errorf("failure %+v, want TLS_HANDSHAKE", res.Failure)
			}
			if n := len(w.origin.Requests("mtls")); n != 0 {
				t.Errorf("the origin saw %d requests, want none", n)
			}
		})
	}
}

// TestClientCertificateWantedAndReset has an origin of TLS 1.3 reset the connection once it has refused the handshake.
// The reset may overtake the alert.
func TestClientCertificateWantedAndReset(t *testing.T) {
	t.Parallel()
	pair, certPEM, _, err := selfsigned.New()
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}
			address := serveConns(t, func(conn net.Conn, _ int) {
				_ = tls.Server(conn, config).Handshake() // the client has no certificate
				if c, ok := conn.(*net.TCPConn); ok {
					_ = c.SetLinger(0)
				}
			})
			c := newClient(t, fetch.Config{RootCAs: roots, Egress: unrestricted})
			for range 12 {
				r := get(t, "https://"+address+"/")
				r.ConnectTimeout, r.Policy.BaseDelay = r.TotalTimeout, 0
				if out := c.Fetch(t.Context(), r, nil); classOf(out.Failure) != classify.TLSHandshake || out.Attempts != 3 {
					t.Errorf("%+v after %d attempts, want TLS_HANDSHAKE after 3", out.Failure, out.Attempts)
				}
			}
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
