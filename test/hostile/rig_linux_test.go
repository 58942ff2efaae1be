package hostile

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fetchd/classify"
	"fetchd/conformance/space"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// permitted is the only address that the client may reach. extraPort is the only port that it
// may use besides 80 and 443.
const (
	permitted  = "203.0.113.10"
	extraPort  = 8088
	nameServer = "127.0.0.53:53"
)

// honeypotPorts are the ports that listen on every address.
var honeypotPorts = []int{22, 80, 443, 8080, extraPort}

// rig is the hostile network and a client in it.
type rig struct {
	pots         pots
	dns          *space.Names
	client, zero *fetch.Client // zero has an empty egress policy
}

// newRig returns an error if the system cannot provide the network.
func newRig(t *testing.T) (*rig, error) {
	t.Helper()
	if err := space.OwnEverything(); err != nil {
		return nil, err
	}
	r := &rig{pots: pots{toOrigin: make(chan net.Conn), closed: make(chan struct{})}}
	if err := r.pots.open(t); err != nil {
		return nil, err
	}
	var err error
	if r.dns, err = serveNames(t, nameServer); err != nil {
		return nil, err
	}
	r.client = newClient(t, fetch.Egress{
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix(permitted + "/32")},
		AllowPorts: []uint16{extraPort},
	})
	r.zero = newClient(t, fetch.Egress{})
	return r, nil
}

func newClient(t *testing.T, e fetch.Egress) *fetch.Client {
	t.Helper()
	c, err := fetch.New(fetch.Config{Egress: e, Resolver: fetch.Resolver(nameServer)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// fetch fetches u with a standard request that does not wait between attempts.
func (r *rig) fetch(t *testing.T, c *fetch.Client, method string, u *url.URL) *fetch.Outcome {
	t.Helper()
	req := fetch.NewRequest(classify.Standard)
	req.Method, req.URL, req.Policy.BaseDelay = method, u, 0
	return c.Fetch(t.Context(), req, nil)
}

// pots listen on every address. They pass connections for the origin on to it, and record and
// close all others.
type pots struct {
	toOrigin chan net.Conn // accepted at the permitted address and its ports
	closed   chan struct{}

	mu   sync.Mutex
	hits []string // local addresses that accepted a connection
	seen sync.Cond
}

func (p *pots) open(t *testing.T) error {
	t.Helper()
	p.seen.L = &p.mu
	var running sync.WaitGroup
	var listeners []net.Listener
	server := &http.Server{Handler: http.HandlerFunc(answer)}
	t.Cleanup(func() {
		close(p.closed)
		for _, l := range listeners {
			_ = l.Close()
		}
		_ = server.Close()
		running.Wait()
	})
	var listen net.ListenConfig
	for _, port := range honeypotPorts {
		for network, any := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
			l, err := listen.Listen(t.Context(), network, net.JoinHostPort(any, strconv.Itoa(port)))
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
			running.Go(func() { p.accept(l) })
		}
	}
	running.Go(func() { _ = server.Serve(p) })
	return nil
}

func (p *pots) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		switch at := conn.LocalAddr().String(); at {
		case permitted + ":80", net.JoinHostPort(permitted, strconv.Itoa(extraPort)):
			select {
			case p.toOrigin <- conn:
			case <-p.closed:
				_ = conn.Close()
			}
		default:
			_ = conn.Close()
			p.mu.Lock()
			p.hits = append(p.hits, at)
			p.seen.Broadcast()
			p.mu.Unlock()
		}
	}
}

// Accept implements net.Listener, for the origin.
func (p *pots) Accept() (net.Conn, error) {
	select {
	case conn := <-p.toOrigin:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pots) Close() error { return nil }

// Addr implements net.Listener.
func (p *pots) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(permitted), Port: 80} }

// await waits until n connections were accepted and returns their local addresses.
func (p *pots) await(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.hits) < n {
		p.seen.Wait()
	}
	return p.hits
}

// answer is the origin's handler. /N?status=S&to=U redirects N times to itself and then to U;
// further values of to are further Locations. Any other path is a page. Each connection
// serves one request, so that each hop resolves and dials.
func answer(w http.ResponseWriter, q *http.Request) {
	h := w.Header()
	h.Set("Connection", "close")
	query := q.URL.Query()
	left, err := strconv.Atoi(strings.TrimPrefix(q.URL.Path, "/"))
	status, ask := strconv.Atoi(query.Get("status"))
	switch {
	case err != nil || ask != nil:
		h.Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("the origin\n"))
		return
	case left > 0:
		h.Set("Location", strconv.Itoa(left-1)+"?"+q.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
		return
	}
	name := "Location"
	if as := query.Get("as"); as != "" {
		name = as
	}
	h[name] = query["to"]
	w.WriteHeader(status)
}

// is returns the answers of a name that always has the same addresses.
func is(addrs ...string) space.Host { return space.Host{Turns: [][]string{addrs}} }

func serveNames(t *testing.T, address string) (*space.Names, error) {
	t.Helper()
	n, err := space.Serve(t.Context(), address)
	if err == nil {
		t.Cleanup(n.Close)
	}
	return n, err
}

// dial connects without the guard, to check that the address would have answered.
func dial(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// reasonOf returns the reason why a URL was refused.
func reasonOf(err error) string {
	if wrong, ok := errors.AsType[*urls.Error](err); ok {
		return wrong.Reason
	}
	return ""
}
