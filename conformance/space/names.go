package space

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// Host is what the name server answers for a name.
type Host struct {
	// Turns has a list of addresses for each query of a type. The last list repeats.
	Turns [][]string
	// CNAME has one or more names, separated by spaces, each an alias of the one before.
	CNAME string
	RCode dnsmessage.RCode
}

// Names is a name server.
type Names struct {
	conn net.PacketConn
	done chan struct{}

	mu    sync.Mutex
	hosts map[string]Host
	asked map[string]int
}

// Serve starts a name server on a UDP address. It knows no name.
func Serve(ctx context.Context, address string) (*Names, error) {
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	n := &Names{conn: conn, done: make(chan struct{}), hosts: make(map[string]Host), asked: make(map[string]int)}
	go func() {
		defer close(n.done)
		buf := make([]byte, 4<<10)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if said, ok := n.answer(buf[:size]); ok {
				_, _ = conn.WriteTo(said, from) // the client asks again
			}
		}
	}()
	return n, nil
}

// Close stops the name server.
func (n *Names) Close() {
	_ = n.conn.Close()
	<-n.done
}

// Set sets the answers for a name. The next query of a type gets the first list.
func (n *Names) Set(name string, h Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = h
	maps.DeleteFunc(n.asked, func(key string, _ int) bool { return strings.HasPrefix(key, name+" ") })
}

func (n *Names) answer(query []byte) ([]byte, bool) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil, false
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	h, addrs := n.Lookup(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")), q.Type)
	m.RCode = h.RCode
	owner := q.Name
	for cname := range strings.FieldsSeq(h.CNAME) {
		next := dnsmessage.MustNewName(cname)
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: owner, Type: dnsmessage.TypeCNAME, Class: q.Class},
			Body:   &dnsmessage.CNAMEResource{CNAME: next},
		})
		owner = next
	}
	for _, addr := range addrs {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Type: q.Type, Class: q.Class}}
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
	said, err := m.Pack()
	return said, err == nil
}

// Lookup returns the next answer for a name and a type.
func (n *Names) Lookup(name string, kind dnsmessage.Type) (Host, []netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.hosts[name]
	if !ok {
		return Host{RCode: dnsmessage.RCodeNameError}, nil
	}
	if len(h.Turns) == 0 {
		return h, nil
	}
	key := name + " " + kind.String()
	list := h.Turns[min(n.asked[key], len(h.Turns)-1)]
	n.asked[key]++
	var addrs []netip.Addr
	for _, a := range list {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return h, addrs
}
