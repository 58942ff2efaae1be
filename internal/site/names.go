package site

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers questions over UDP. Its answers are too short to need TCP.
type nameServer struct {
	zone    string // ".demo.test."
	conn    *net.UDPConn
	readers sync.WaitGroup
}

const (
	// questionsBuffer is in bytes; the system may grant less.
	questionsBuffer = 4 << 20
	readers         = 4
)

func startNames(suffix string) (*nameServer, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	// A question that is dropped costs its asker five seconds, and hundreds come at once.
	if err := conn.SetReadBuffer(questionsBuffer); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	n := &nameServer{zone: "." + suffix + ".", conn: conn}
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

// maxQuestion bounds a datagram; what is longer is cut, and so no question.
const maxQuestion = 4096

func (n *nameServer) serve() {
	buffer := make([]byte, maxQuestion)
	for {
		size, from, err := n.conn.ReadFromUDPAddrPort(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // of one datagram
		}
		if reply := n.reply(buffer[:size]); reply != nil {
			_, _ = n.conn.WriteToUDPAddrPort(reply, from) // who left needs no answer
		}
	}
}

// reply answers a datagram; nil for one that is no question.
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
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// fill adds the address or the code to the answer.
func (n *nameServer) fill(m *dnsmessage.Message, q dnsmessage.Question) {
	name := strings.ToLower(q.Name.String())
	switch {
	case m.OpCode != 0:
		m.RCode = dnsmessage.RCodeNotImplemented
	case "."+name == n.zone: // it exists, for there are names under it (RFC 8020)
	case !n.has(name):
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA && q.Class == dnsmessage.ClassINET:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
}

// has says whether a name is under the suffix and none of its labels is gone.
func (n *nameServer) has(name string) bool {
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

// NameServer returns host:port of the name server, which speaks UDP. It answers
// A 127.0.0.1 for every name under the suffix, nothing for the other types of
// such a name, and NXDOMAIN for names with a label gone or gone-... and for all
// other names.
func (s *Site) NameServer() string { return s.names.conn.LocalAddr().String() }

// Resolver returns a resolver that asks [Site.NameServer] alone. A lookup that
// meets [Site.Close] may wait for an answer until the resolver's own limit,
// 5 s and again, or until its context ends.
func (s *Site) Resolver() *net.Resolver {
	addr := s.NameServer()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", addr)
	}}
}
