package fetch_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names is a name server on loopback. Names that it does not have do not exist.
type names struct {
	mu      sync.Mutex
	answers map[string][][]string // by name, one list of addresses after the other, the last for good
	asked   map[string]int        // questions for IPv4 addresses
}

// newNames returns a name server with the given answers, which must not change afterwards.
func newNames(answers map[string][][]string) *names {
	return &names{answers: answers, asked: make(map[string]int)}
}

// resolver returns a resolver that asks only n. It is closed at the end of the test.
func (n *names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.serve(conn)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n *names) serve(conn net.PacketConn) {
	buf := make([]byte, 4<<10)
	for {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, ok := n.answer(buf[:size]); ok {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

func (n *names) answer(query []byte) ([]byte, bool) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil, false
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	addrs, ok := n.lookup(strings.TrimSuffix(q.Name.String(), "."), q.Type)
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, addr := range addrs {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}}
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			r.Body = &dnsmessage.AResource{A: addr.As4()}
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			r.Body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, r)
	}
	answer, err := m.Pack()
	return answer, err == nil
}

// lookup uses the next list of addresses for each question for IPv4 addresses.
func (n *names) lookup(name string, kind dnsmessage.Type) ([]netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lists, ok := n.answers[name]
	if !ok {
		return nil, false
	}
	list := lists[min(n.asked[name], len(lists)-1)]
	if kind == dnsmessage.TypeA {
		n.asked[name]++
	}
	var addrs []netip.Addr
	for _, a := range list {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, true
}

func (n *names) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name]
}
