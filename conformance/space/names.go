package space

import (
	"context"
	"errors"
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

// Server is a name server. Its answers are too short to need TCP.
type Server struct {
	conn    net.PacketConn
	readers sync.WaitGroup
}

const (
	// questionsBuffer is in bytes. The system may grant less.
	questionsBuffer = 4 << 20
	readers         = 4
	// maxQuestion limits a datagram. A longer one is truncated and then invalid.
	maxQuestion = 4 << 10
)

// Lookup returns the answer for a name, in lower case and without a dot at its end. Addresses of another type are left out.
type Lookup func(name string, kind dnsmessage.Type) (Host, []netip.Addr)

// Listen starts a name server on a UDP address. It calls lookup concurrently.
func Listen(ctx context.Context, address string, lookup Lookup) (*Server, error) {
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	// A resolver waits five seconds after a lost query, and hundreds come at once.
	if udp, ok := conn.(*net.UDPConn); ok {
		err = udp.SetReadBuffer(questionsBuffer)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &Server{conn: conn}
	for range readers {
		s.readers.Go(func() { s.serve(lookup) })
	}
	return s, nil
}

func (s *Server) serve(lookup Lookup) {
	buf := make([]byte, maxQuestion)
	for {
		size, from, err := s.conn.ReadFrom(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // an error of one datagram
		}
		if said, ok := answer(buf[:size], lookup); ok {
			_, _ = s.conn.WriteTo(said, from) // the client asks again
		}
	}
}

// Addr returns the address of the name server.
func (s *Server) Addr() net.Addr { return s.conn.LocalAddr() }

// Close stops the name server.
func (s *Server) Close() error {
	err := s.conn.Close()
	s.readers.Wait()
	return err
}

// Names is a name server whose answers change.
type Names struct {
	*Server

	mu    sync.Mutex
	hosts map[string]Host
	asked map[string]int
}

// Serve starts a name server on a UDP address. It knows no name.
func Serve(ctx context.Context, address string) (_ *Names, err error) {
	n := &Names{hosts: make(map[string]Host), asked: make(map[string]int)}
	n.Server, err = Listen(ctx, address, n.next)
	return n, err
}

// Set sets the answers for a name. The next query of a type gets the first list.
func (n *Names) Set(name string, h Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = h
	maps.DeleteFunc(n.asked, func(key string, _ int) bool { return strings.HasPrefix(key, name+" ") })
}

func answer(query []byte, lookup Lookup) ([]byte, bool) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || m.Response || len(m.Questions) != 1 {
		return nil, false
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	h, addrs := lookup(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")), q.Type)
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

// next returns the next answer for a name and a type.
func (n *Names) next(name string, kind dnsmessage.Type) (Host, []netip.Addr) {
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
