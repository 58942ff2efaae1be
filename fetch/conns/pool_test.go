package conns_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // only to silence it
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
	"fetchd/test/must"
	"fetchd/test/wait"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http logs what was not requested
	goleak.VerifyTestMain(m)
}

// bench is a pool with an origin that answers with the number of the connection.
type bench struct {
	*testing.T
	pool   *conns.Pool
	target conns.Target
	dial   func(ctx context.Context, network, address string) (net.Conn, error) // to the origin in memory
}

// answer sends one request, reads the answer, and returns it.
func (b *bench) answer(t conns.Target) (string, conns.Report) {
	b.Helper()
	x, resp, err := b.send(b.Context(), t)
	defer x.End()
	if err != nil {
		b.Error(err)
		return "", x.Report()
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Error(err)
	}
	return string(body), x.Report()
}

func (b *bench) send(ctx context.Context, t conns.Target) (*conns.Exchange, *http.Response, error) {
	b.Helper()
	x := b.pool.NewExchange(ctx, new(timers.Clock), conns.Settings{})
	if err := x.Connect(t); err != nil {
		return x, nil, err
	}
	req := &http.Request{Method: http.MethodGet, URL: t.URL, Host: t.URL.Host, Header: http.Header{}}
	resp, err := x.RoundTrip(req)
	return x, resp, err
}

func numbered(accepted *atomic.Int64) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, numberKey{}, strconv.FormatInt(accepted.Add(1), 10))
	}
}

type numberKey struct{}

func tellNumber(w http.ResponseWriter, r *http.Request) {
	if timeout := r.URL.Query().Get("timeout"); timeout != "" {
		w.Header().Set("Keep-Alive", "timeout="+timeout)
	}
	if challenge := r.URL.Query().Get("challenge"); challenge != "" {
		w.Header().Set("Www-Authenticate", challenge)
	}
	_, _ = fmt.Fprint(w, r.Context().Value(numberKey{}))
}

// newBench starts an origin in memory, for a synctest bubble.
func newBench(t *testing.T, origins map[string]*conns.OriginTLS) *bench {
	t.Helper()
	return newBenchDialling(t, origins, nil)
}

// newBenchDialling is newBench with a function that wraps each connection.
func newBenchDialling(t *testing.T, origins map[string]*conns.OriginTLS, wrap func(net.Conn) net.Conn) *bench {
	t.Helper()
	var accepted atomic.Int64
	l := bufconn.Listen(64 << 10)
	srv := &http.Server{Handler: http.HandlerFunc(tellNumber), ConnContext: numbered(&accepted)}
	go func() { _ = srv.Serve(l) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := l.DialContext(ctx)
		if err == nil && wrap != nil {
			c = wrap(c)
		}
		return c, err
	}
	p := conns.New(conns.Config{
		Guard:   egress.New(egress.Policy{Unrestricted: true}),
		MaxIdle: 1024,
		Dial:    dial,
	})
	p.SetOrigins(origins)
	t.Cleanup(func() {
		p.Close()
		_ = srv.Close()
		_ = l.Close()
	})
	return &bench{T: t, pool: p, dial: dial, target: conns.Target{URL: &url.URL{Scheme: "http", Host: "origin.example", Path: "/"}}}
}

// TestReuse checks which connection the second request takes after a pause.
func TestReuse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		first string // query of the first request
		pause time.Duration
		then  func(*conns.Target)
		want  string
	}{
		{name: "at once", want: "1"},
		{name: "after less than the idle limit", pause: 59 * time.Second, want: "1"},
		{name: "not after the idle limit", pause: 60 * time.Second, want: "2"},
		{name: "after less than Keep-Alive says", first: "timeout=5", pause: 3900 * time.Millisecond, want: "1"},
		{name: "not a second before Keep-Alive says", first: "timeout=5", pause: 4 * time.Second, want: "2"},
		{name: "half of a short Keep-Alive", first: "timeout=1", pause: 500 * time.Millisecond, want: "2"},
		{name: "Keep-Alive of more than the idle limit", first: "timeout=900", pause: 60 * time.Second, want: "2"},
		{name: "Keep-Alive that is no number", first: "timeout=x", pause: 59 * time.Second, want: "1"},
		{name: "a recent connection", pause: 799 * time.Millisecond, then: func(t *conns.Target) { t.Recent = true }, want: "1"},
		{name: "no connection that is not recent", pause: 800 * time.Millisecond, then: func(t *conns.Target) { t.Recent = true }, want: "2"},
		{name: "not if it must be fresh", then: func(t *conns.Target) { t.Fresh = true }, want: "2"},
		{name: "alone", then: func(t *conns.Target) { t.Alone = true }, want: "2"},
		{name: "another host", then: func(t *conns.Target) { t.URL = &url.URL{Scheme: "http", Host: "other.example", Path: "/"} }, want: "2"},
		{name: "another port", then: func(t *conns.Target) { t.URL = &url.URL{Scheme: "http", Host: "origin.example:81", Path: "/"} }, want: "2"},
		{name: "not after NTLM", first: "challenge=NTLM", want: "2"},
		{name: "after Basic", first: "challenge=Basic", want: "1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				first := b.target
				first.URL = &url.URL{Scheme: "http", Host: first.URL.Host, Path: "/", RawQuery: row.first}
				b.answer(first)
				wait.For(t.Context(), row.pause)
				if row.then != nil {
					row.then(&b.target)
				}
				got, report := b.answer(b.target)
				if got != row.want || report.Reused != (got == "1") {
					t.Errorf("connection %s (reused: %t), want %s", got, report.Reused, row.want)
				}
				synctest.Wait() // the end of an idle connection may still be on its way
				if s := b.pool.Stats(); row.pause >= time.Minute && s.Open != 1 {
					t.Errorf("%d connections are open, want 1: the idle limit has passed", s.Open)
				}
			})
		})
	}
}

// TestShortKeepAlive checks that a connection which is idle too long does not hide one that was
// used before it.
func TestShortKeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		long, resp, err := b.send(t.Context(), b.target)
		must.Succeed(t, err)
		_, _ = io.ReadAll(resp.Body)
		short := b.target
		short.URL = &url.URL{Scheme: "http", Host: b.target.URL.Host, Path: "/", RawQuery: "timeout=1"}
		second, resp, err := b.send(t.Context(), short)
		must.Succeed(t, err)
		_, _ = io.ReadAll(resp.Body)
		long.End()
		second.End()
		wait.For(t.Context(), 600*time.Millisecond)
		if got, _ := b.answer(b.target); got != "1" {
			t.Errorf("connection %s, want 1", got)
		}
	})
}

// TestAloneIsNotKept checks that the connection of a request that goes alone serves no
// other request.
func TestAloneIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		alone := b.target
		alone.Alone = true
		b.answer(alone)
		synctest.Wait()
		if s := b.pool.Stats(); s.Open != 0 || s.Idle != 0 {
			t.Errorf("open %d, idle %d, want none", s.Open, s.Idle)
		}
	})
}

// TestOriginThatClosesAtOnce checks that it makes no difference how soon a new connection is found
// to be closed.
func TestOriginThatClosesAtOnce(t *testing.T) {
	t.Parallel()
	pool := conns.New(conns.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		return near, far.Close()
	}})
	defer pool.Close()
	b := &bench{T: t, pool: pool, target: conns.Target{URL: &url.URL{Scheme: "http", Host: "origin.test", Path: "/"}}}
	for range 10_000 { // a race: if dial did not give the error a class, a few would differ
		x, _, err := b.send(t.Context(), b.target)
		if class := x.ClassOf(x.Phase(), err); class != classify.ConnectionReset {
			t.Errorf("class %s in phase %s: %v, want connection_reset", class, x.Phase(), err)
		}
		x.End()
	}
}

// TestOver checks that an exchange that is over sends nothing, and that its connection
// stays usable.
func TestOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.answer(b.target)
		x := b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
		must.Succeed(t, x.Connect(b.target))
		x.Cancel(context.Canceled)
		if _, err := x.RoundTrip(&http.Request{Method: http.MethodGet, URL: b.target.URL, Header: http.Header{}}); err == nil {
			t.Error("a request was sent")
		}
		if x.Report().Sent {
			t.Error("the report says that the request was sent")
		}
		x.End()
		if got, _ := b.answer(b.target); got != "1" {
			t.Errorf("connection %s, want 1", got)
		}
		x = b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
		defer x.End()
		x.Cancel(context.Canceled)
		if err := x.Connect(b.target); err == nil {
			t.Error("an exchange that is over has connected")
		}
	})
}

// TestWrongConnection checks that a request for another host is not sent.
func TestWrongConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		x := b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
		defer x.End()
		must.Succeed(t, x.Connect(b.target))
		other := &url.URL{Scheme: "http", Host: "other.example", Path: "/"}
		_, err := x.RoundTrip(&http.Request{Method: http.MethodGet, URL: other, Header: http.Header{}})
		if classify.Error(classify.PhaseRequest, err) != classify.Internal {
			t.Errorf("error %v, want INTERNAL", err)
		}
	})
}

// TestIdleLimits checks how many connections are kept of many that were open at once.
func TestIdleLimits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		hosts, each int
		want        int
	}{
		{"of one host", 1, 600, 512},
		{"of all hosts", 3, 400, 1024},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				var open []*conns.Exchange
				for i := range row.hosts * row.each {
					target := b.target
					target.URL = &url.URL{Scheme: "http", Host: fmt.Sprintf("origin%d.example", i%row.hosts), Path: "/"}
					x, resp, err := b.send(t.Context(), target)
					must.Succeed(t, err)
					_, _ = io.ReadAll(resp.Body)
					open = append(open, x)
				}
				for _, x := range open {
					x.End()
				}
				synctest.Wait()
				if s := b.pool.Stats(); s.Idle != row.want || s.Open != row.want {
					t.Errorf("idle %d, open %d, want %d", s.Idle, s.Open, row.want)
				}
				b.pool.Close()
				synctest.Wait()
				if s := b.pool.Stats(); s.Idle != 0 || s.Open != 0 {
					t.Errorf("after Close: idle %d, open %d", s.Idle, s.Open)
				}
			})
		})
	}
}

// TestIdleMemory checks that idle connections are charged, have an eighth of the budget, and are closed
// before a lease is refused memory, the longest idle first.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		const each = 4 << 10
		memory := budget.New(8 * 10 * each) // room for ten
		b.pool = conns.New(conns.Config{Guard: egress.New(egress.Policy{Unrestricted: true}), Memory: memory, Dial: b.dial})
		defer b.pool.Close()
		var open []*conns.Exchange
		for range 15 {
			x, resp, err := b.send(t.Context(), b.target)
			must.Succeed(t, err)
			_, _ = io.ReadAll(resp.Body)
			open = append(open, x)
		}
		idle := func(want int) {
			t.Helper()
			synctest.Wait()
			if s, held := b.pool.Stats(), memory.Usage()[budget.Idle]; s.Idle != want || s.Open != want || held != int64(want)*each {
				t.Errorf("idle %d, open %d, %d bytes are charged, want %d and %d", s.Idle, s.Open, held, want, want*each)
			}
		}
		for _, x := range open {
			x.End()
		}
		idle(10)
		x, _, err := b.send(t.Context(), b.target)
		must.Succeed(t, err)
		if s, held := b.pool.Stats(), memory.Usage()[budget.Idle]; s.Idle != 9 || held != 9*each {
			t.Errorf("idle %d, %d bytes are charged while one is in use, want 9", s.Idle, held)
		}
		x.End() // which closes it, because the body is not read
		idle(9)
		one, other, third := memory.Lease("a"), memory.Lease("b"), memory.Lease("c")
		defer one.Close()
		defer other.Close()
		defer third.Close()
		if !one.Grow(budget.Body, 60*each) || !other.Grow(budget.Body, 10*each) {
			t.Fatal("what is not idle was refused")
		}
		idle(9)
		for _, n := range []int64{each / 2, each / 2, each / 4} {
			if !third.Grow(budget.Fetch, n) {
				t.Errorf("%d bytes were refused while connections are idle", n)
			}
		}
		idle(8)
		if got, _ := b.answer(b.target); got != "14" {
			t.Errorf("the newest connection is %s, want 14: the longest idle ones are closed first", got)
		}
	})
}

// TestHTTP2 checks that requests share a connection only after a head has come over it,
// and that new settings of the origin replace it.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	b := newHTTP2Bench(t, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr)
	}))
	p := b.pool
	first := make([]*conns.Exchange, 3)
	for i := range first {
		first[i] = p.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
		must.Succeed(t, first[i].Connect(b.target))
	}
	if s := p.Stats(); s.Dialled != 3 {
		t.Errorf("%d connections for 3 requests at once, want 3", s.Dialled)
	}
	for _, x := range first {
		x.End()
	}
	one, report := b.answer(b.target)
	if report.Protocol != "HTTP/2.0" || report.Reused {
		t.Errorf("%+v", report)
	}
	var many sync.WaitGroup
	for range 50 {
		many.Go(func() {
			if got, report := b.answer(b.target); got != one || !report.Reused {
				t.Errorf("connection %s (reused: %t), want %s", got, report.Reused, one)
			}
		})
	}
	many.Wait()
	p.SetOrigins(map[string]*conns.OriginTLS{b.target.URL.Host: {Certificate: new(tls.Certificate)}})
	if got, _ := b.answer(b.target); got == one {
		t.Error("new settings of the origin use a connection of the old ones")
	}
}

// TestInvalidRequests checks that a request which would be written as another one is not sent.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method string
		header       http.Header
		valid        bool
		length       int64 // of the body, which is empty
	}{
		{"valid", "GET", http.Header{"X-A": {"b c"}, "X-B": {""}}, true, 0},
		{"a valid method of no standard", "PROPFIND", nil, true, 0},
		{"a line end in a value", "GET", http.Header{"X-A": {"b\r\nX-C: d"}}, false, 0},
		{"a control in the second value", "GET", http.Header{"X-A": {"b", "c\x00"}}, false, 0},
		{"a blank in a name", "GET", http.Header{"X A": {"b"}}, false, 0},
		{"a line end in a name", "GET", http.Header{"X-A\r\nX-B": {"b"}}, false, 0},
		{"an empty name", "GET", http.Header{"": {"b"}}, false, 0},
		{"a blank in the method", "GET /x HTTP/1.1\r\nA: b", nil, false, 0},
		{"no method", "", nil, false, 0},
		{"a body that is shorter than its length", "PUT", nil, false, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				b.answer(b.target)
				x := b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
				must.Succeed(t, x.Connect(b.target))
				req := &http.Request{Method: row.method, URL: b.target.URL, Host: b.target.URL.Host, Header: row.header}
				if row.length > 0 {
					req.Body, req.ContentLength = io.NopCloser(strings.NewReader("")), row.length
				}
				_, err := x.RoundTrip(req)
				if (err == nil) != row.valid || x.Report().Sent != row.valid {
					t.Errorf("sent %t, %v, want it sent: %t", x.Report().Sent, err, row.valid)
				}
				x.End()
			})
		})
	}
}

// TestSessions checks that a second connection to an origin resumes the TLS session of the first, and
// that an origin with its own settings gets a whole handshake.
func TestSessions(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.TLS.DidResume) }))
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	must.Succeed(t, err)
	roots := rootsOf(srv)
	pool := conns.New(conns.Config{RootCAs: roots,
		Guard: egress.New(egress.Policy{Unrestricted: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})})
	t.Cleanup(pool.Close)
	b := &bench{T: t, pool: pool, target: conns.Target{URL: u, Alone: true}}
	for i, want := range []string{"false", "true", "true"} {
		if got, _ := b.answer(b.target); got != want {
			t.Errorf("handshake %d: resumed %s, want %s", i+1, got, want)
		}
	}
	pool.SetOrigins(map[string]*conns.OriginTLS{u.Host: {RootCAs: roots}})
	if got, _ := b.answer(b.target); got != "false" {
		t.Errorf("with settings of the origin: resumed %s, want false", got)
	}
}

// TestReadAfterEnd checks that the body of an exchange that has ended gives nothing: its buffer belongs to
// another exchange.
func TestReadAfterEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		x, resp, err := b.send(t.Context(), b.target)
		must.Succeed(t, err)
		x.End()
		if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("Read after End = %d, %v", n, err)
		}
	})
}

// TestIdleConnectionKeepsNoExchange checks that the exchange which made a connection is collected while the
// connection is idle, with TLS too.
func TestIdleConnectionKeepsNoExchange(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		start func(http.Handler) *httptest.Server
	}{{"plain", httptest.NewServer}, {"TLS", httptest.NewTLSServer}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := row.start(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
			t.Cleanup(srv.Close)
			u, err := url.Parse(srv.URL)
			must.Succeed(t, err)
			pool := conns.New(conns.Config{RootCAs: rootsOf(srv),
				Guard: egress.New(egress.Policy{Unrestricted: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})})
			t.Cleanup(pool.Close)
			b := &bench{T: t, pool: pool, target: conns.Target{URL: u}}
			first := func() weak.Pointer[conns.Exchange] {
				x, resp, err := b.send(t.Context(), b.target)
				must.Succeed(t, err)
				_, _ = io.ReadAll(resp.Body)
				x.End()
				return weak.Make(x)
			}()
			if pool.Stats().Idle != 1 {
				t.Fatal("the connection is not idle")
			}
			for range 100 {
				if runtime.GC(); first.Value() == nil {
					return
				}
			}
			t.Error("the idle connection keeps the exchange in memory")
		})
	}
}

func rootsOf(srv *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	if c := srv.Certificate(); c != nil {
		roots.AddCert(c)
	}
	return roots
}

// peerConn is a connection to an address.
type peerConn struct {
	net.Conn
	peer netip.AddrPort
}

func (c peerConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.peer) }

// narrow permits all addresses but one, and counts the checks of each.
type narrow struct {
	denied  netip.AddrPort
	checked map[netip.AddrPort]int
	asked   int
}

func (n *narrow) CheckAddr(target netip.AddrPort) error {
	n.checked[target]++
	if target == n.denied {
		return errors.New("denied")
	}
	return nil
}

func (n *narrow) Permits(target netip.AddrPort) bool {
	n.asked++
	return target != n.denied
}

// TestNarrowedPool checks that a request skips connections to addresses that it may not reach. It asks once for
// each address, and checks only the connection that it takes, because a check is recorded.
func TestNarrowedPool(t *testing.T) {
	t.Parallel()
	denied, permitted := netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("192.0.2.2:80")
	for _, row := range []struct {
		name    string
		last    netip.AddrPort // of the connection that would be taken without a policy
		asked   int
		checked map[netip.AddrPort]int
		reused  bool
	}{
		{"a permitted connection under forbidden ones", denied, 2, map[netip.AddrPort]int{permitted: 1}, true},
		{"a permitted connection first", permitted, 1, map[netip.AddrPort]int{permitted: 1}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				peers := []netip.AddrPort{permitted, denied, denied, denied, row.last}
				var dialled atomic.Int64
				b := newBenchDialling(t, nil, func(c net.Conn) net.Conn { return peerConn{c, peers[dialled.Add(1)-1]} })
				var open []*conns.Exchange
				for range peers {
					x, resp, err := b.send(t.Context(), b.target)
					must.Succeed(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					open = append(open, x)
				}
				for _, x := range open {
					x.End()
				}
				n := &narrow{denied: denied, checked: make(map[netip.AddrPort]int)}
				target := b.target
				target.Egress = n
				if _, report := b.answer(target); report.Reused != row.reused || report.RemoteAddress != permitted.String() {
					t.Errorf("reused %t, address %s", report.Reused, report.RemoteAddress)
				}
				if n.asked != row.asked || !maps.Equal(n.checked, row.checked) {
					t.Errorf("asked %d times, checked %v, want %d and %v", n.asked, n.checked, row.asked, row.checked)
				}
			})
		})
	}
}
