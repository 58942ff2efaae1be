package guardrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/conformance"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/conformance/space"
)

// ErrNoNetwork means that this system cannot provide the network, which needs root.
var ErrNoNetwork = errors.New("no network namespace in which every address answers")

const (
	nameServer = "127.0.0.53:53"
	// sentinel is an address that only this package connects to.
	sentinel = "198.19.255.253"
)

// headerTime is how long a client has for its request, so that one of another protocol does not wait.
const headerTime = 3 * time.Second

// ports are those that listen on every address, except that of a proxy that is judged.
var ports = []uint16{21, 22, 70, 80, 443, 1080, 3128, 8080}

// system has the files that name the resolver.
var system = map[string]string{
	"/etc/resolv.conf":   "nameserver 127.0.0.53\n",
	"/etc/hosts":         "127.0.0.1 localhost\n",
	"/etc/nsswitch.conf": "hosts: files dns\n",
}

// Run runs the program for each row, one after the other, and returns the results in their order. It returns an error
// that wraps [ErrNoNetwork] if the system cannot provide the network, and one if the program cannot be started, does not
// speak the protocol of its kind, or ctx ends. Proxies of the environment are not passed on to the program.
func Run(ctx context.Context, g *Guard, rows []conformance.GuardRow) (results []Result, err error) {
	space.OnOwnThread(func() {
		var n *network
		if n, err = enter(ctx, g, rows); err != nil {
			err = fmt.Errorf("%w: %w", ErrNoNetwork, err)
			return
		}
		defer n.close()
		for i := range rows {
			var r Result
			if r, err = n.run(ctx, g, &rows[i]); err != nil {
				return
			}
			results = append(results, r)
		}
	})
	return results, err
}

// network is a network namespace in which every address answers.
type network struct {
	names     *space.Names
	server    *http.Server
	listeners []net.Listener // one for each of ports
	ports     []uint16
	conns     chan net.Conn // accepted ones, for the server
	closed    chan struct{}
	running   sync.WaitGroup

	mu        sync.Mutex
	row       *conformance.GuardRow
	arrived   []netip.Addr // the local addresses of connections, since the row began
	sentinels chan struct{}
}

// enter moves the calling thread into a new network.
func enter(ctx context.Context, g *Guard, rows []conformance.GuardRow) (*network, error) {
	if err := space.Enter(system); err != nil {
		return nil, err
	}
	var unreachable []netip.Addr
	for i := range rows {
		for _, addr := range rows[i].Unreachable {
			unreachable = append(unreachable, netip.MustParseAddr(addr))
		}
	}
	if err := space.OwnEverything(unreachable...); err != nil {
		return nil, err
	}
	n := &network{conns: make(chan net.Conn), closed: make(chan struct{}), sentinels: make(chan struct{}, len(ports))}
	n.server = &http.Server{Handler: http.HandlerFunc(n.answer), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ReadHeaderTimeout: headerTime}
	var err error
	if n.names, err = space.Serve(ctx, nameServer); err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	for _, port := range ports {
		if strings.HasSuffix(g.Address, fmt.Sprintf(":%d", port)) {
			continue
		}
		l, err := listen.Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			n.close()
			return nil, err
		}
		n.listeners, n.ports = append(n.listeners, l), append(n.ports, port)
		n.running.Go(func() { n.accept(l) })
	}
	n.running.Go(func() { _ = n.server.Serve(n) }) // it ends with close
	return n, nil
}

func (n *network) close() {
	close(n.closed)
	for _, l := range n.listeners {
		_ = l.Close()
	}
	_ = n.server.Close()
	_ = n.names.Close()
	n.running.Wait()
}

func (n *network) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			select {
			case <-n.closed:
				return
			case <-time.After(poll): // a guard that opens many connections uses up the descriptors
				continue
			}
		}
		at, _ := netip.ParseAddrPort(conn.LocalAddr().String()) // TCP addresses are valid
		if at.Addr().Unmap() == netip.MustParseAddr(sentinel) {
			_ = conn.Close()
			select {
			case n.sentinels <- struct{}{}:
			case <-n.closed:
			}
			continue
		}
		n.mu.Lock()
		n.arrived = append(n.arrived, at.Addr().Unmap().WithZone(""))
		n.mu.Unlock()
		select {
		case n.conns <- conn:
		case <-n.closed:
			_ = conn.Close()
		}
	}
}

// Accept implements net.Listener.
func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *network) Close() error { return nil }

// Addr implements net.Listener.
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

// answer is the handler of every address. Each connection serves one request, so that each hop connects.
func (n *network) answer(w http.ResponseWriter, q *http.Request) {
	n.mu.Lock()
	row := n.row
	n.mu.Unlock()
	w.Header().Set("Connection", "close")
	w.Header().Set("Cache-Control", "no-store") // the next row has another answer
	w.Header().Set("Content-Type", "text/plain")
	if a, ok := row.Origin[q.URL.Path]; ok {
		w.Header().Set("Location", a.Location)
		w.WriteHeader(a.Status)
		return
	}
	_, _ = w.Write(page(row)) // the client may have closed the connection
}

// page returns the page of a row.
func page(r *conformance.GuardRow) []byte { return []byte("The page of " + r.Name + ".\n") }

// run runs the program for a row.
func (n *network) run(ctx context.Context, g *Guard, row *conformance.GuardRow) (Result, error) {
	r := Result{Row: row}
	n.mu.Lock()
	n.row, n.arrived = row, nil
	n.mu.Unlock()
	n.publish(row)
	defer func() {
		for name := range row.DNS {
			n.names.Set(name, space.Host{RCode: dnsmessage.RCodeNameError})
		}
	}()
	before, err := space.Opened()
	if err != nil {
		return r, err
	}
	cmd := g.Command
	cmd.Env = append(judge.WithoutProxies(cmd.Env), settings(row)...)
	got, err := n.ask(ctx, g, &cmd, row)
	if err != nil {
		return r, err
	}
	r.Arrived = !slices.ContainsFunc(got.bodies, func(body []byte) bool { return !bytes.Contains(body, bytes.TrimSpace(page(row))) })
	after, err := space.Opened()
	if err != nil {
		return r, err
	}
	if err := n.settle(ctx); err != nil {
		return r, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Unseen = max(after-before-got.opened-len(n.arrived), 0)
	for _, addr := range n.arrived {
		if !row.Permits(addr) {
			r.Forbidden = append(r.Forbidden, addr.String())
		}
	}
	slices.Sort(r.Forbidden)
	r.Forbidden = slices.Compact(r.Forbidden)
	return r, nil
}

// publish makes the name server answer as the row says, from the first answer on.
func (n *network) publish(row *conformance.GuardRow) {
	for name, answer := range row.DNS {
		alias := ""
		for _, next := range answer.Alias {
			alias += next + ". "
		}
		n.names.Set(name, space.Host{Turns: answer.Addresses, CNAME: alias})
	}
}

// answers are what a guard answered.
type answers struct {
	// bodies has one for each time that the guard was asked for the URL.
	bodies [][]byte
	// opened is how many connections this package opened to ask.
	opened int
}

// ask asks the guard for the URL of a row.
func (n *network) ask(ctx context.Context, g *Guard, cmd *kit.Command, row *conformance.GuardRow) (*answers, error) {
	switch g.Kind {
	case Proxy:
		return n.askProxy(ctx, cmd, g.Address, row)
	case MCP:
		return n.askMCP(ctx, cmd, g.Tool, row)
	default:
		return n.askClient(ctx, cmd, row)
	}
}

func (n *network) askClient(ctx context.Context, cmd *kit.Command, row *conformance.GuardRow) (*answers, error) {
	folder, err := os.MkdirTemp("", "guard-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	body, _, err := cmd.Run(ctx, row.URL, folder)
	return &answers{bodies: [][]byte{body}}, err
}

// settle waits until every connection that was opened before is accepted.
func (n *network) settle(ctx context.Context) error {
	var d net.Dialer
	for _, port := range n.ports {
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.MustParseAddr(sentinel), port).String())
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	for range n.ports {
		select {
		case <-n.sentinels:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
