package site

import (
	"context"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers DNS queries over UDP. Its answers are too short to need TCP.
type nameServer struct {
	zone string // with a dot at both ends
	// addresses is how many addresses names have.
	addresses int
	conn      *net.UDPConn
	readers   sync.WaitGroup
}

const (
	// questionsBuffer is in bytes. The system may grant less.
	questionsBuffer = 4 << 20
	readers         = 4
)

func startNames(suffix string, addresses int) (*nameServer, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	// A resolver waits five seconds after a lost query, and hundreds come at once.
	if err := conn.SetReadBuffer(questionsBuffer); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	n := &nameServer{zone: "." + suffix + ".", addresses: addresses, conn: conn}
	for range readers {
		n.readers.Go(n.serve)
	}
	return n, nil
}

func (n *nameServer) close() error {
	err := n.conn.Close()
	n.readers.Wait()
	return err
}

// maxQuestion limits a datagram. A longer one is truncated and then invalid.
const maxQuestion = 4096

func (n *nameServer) serve() {
	buffer := make([]byte, maxQuestion)
	for {
		size, from, err := n.conn.ReadFromUDPAddrPort(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // an error of one datagram
		}
		if answer := n.reply(buffer[:size]); answer != nil {
			_, _ = n.conn.WriteToUDPAddrPort(answer, from) // a client that left needs no answer
		}
	}
}

// reply returns the answer to a datagram, or nil if it is not a query.
func (n *nameServer) reply(datagram []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(datagram)
	if err != nil || header.Response {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}
	m := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
			Response: true, Authoritative: true, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	n.fill(&m, question)
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// fill adds the address or the response code to the answer.
func (n *nameServer) fill(m *dnsmessage.Message, q dnsmessage.Question) {
	name := strings.ToLower(q.Name.String())
	switch {
	case m.OpCode != 0:
		m.RCode = dnsmessage.RCodeNotImplemented
	case "."+name == n.zone: // the zone exists because it has names below it (RFC 8020)
	case !n.hasName(name):
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA && q.Class == dnsmessage.ClassINET:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: n.address(strings.TrimSuffix(name, ".")).As4()},
		}}
	}
}

// addressNumber returns an address of a site, from number 0 on.
func addressNumber(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, byte(n >> 8), byte(n + 1)})
}

// address returns the address of a name without a dot at its end.
func (n *nameServer) address(name string) netip.Addr {
	return addressNumber(int(crc32.ChecksumIEEE([]byte(name)) % uint32(n.addresses)))
}

// Address returns the address of a host, which is a name without a port.
func (s *Site) Address(host string) netip.Addr { return s.names.address(host) }

// hasName reports whether a name is below the suffix and has no label gone or gone-....
func (n *nameServer) hasName(name string) bool {
	under, ok := strings.CutSuffix(name, n.zone)
	if !ok || under == "" {
		return false
	}
	for label := range strings.SplitSeq(under, ".") {
		if label == "gone" || strings.HasPrefix(label, "gone-") {
			return false
		}
	}
	return true
}

// NameServer returns host:port of the name server, which speaks UDP. Every name below the suffix
// has one address, 127.0.0.1 unless there are many, and no other records. Names with a label gone or gone-..., and all
// other names, are NXDOMAIN.
func (s *Site) NameServer() string { return s.names.conn.LocalAddr().String() }

// Resolver returns a resolver that asks only [Site.NameServer]. A lookup during [Site.Close] may
// wait until its context ends, or for the resolver's own limit of twice 5 s.
func (s *Site) Resolver() *net.Resolver { return resolverOf(s.NameServer()) }

// resolverOf returns a resolver that asks only this name server. What waits for an answer ends with the context of the
// lookup, which net.Resolver does not do by itself: a transport cancels dials that it no longer needs.
func resolverOf(addr string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp4", addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // the resolver closes it too
		}
		return conn, err
	}}
}
