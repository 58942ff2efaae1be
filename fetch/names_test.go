package fetch_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/fetch"
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
	must(t, err)
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

// TestLongAnswersOfNameServers checks that an answer over TCP is truncated. Go would
// open a socket for each of thousands of addresses.
func TestLongAnswersOfNameServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		addresses int
		found     bool
	}{{"100 addresses", 100, true}, {"4,000 addresses", 4000, false}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			found, err := fetch.Resolver(nameServer(t, row.addresses)).LookupNetIP(t.Context(), "ip4", "many.example.")
			if (err == nil) != row.found || row.found && len(found) != row.addresses {
				t.Errorf("%d addresses, %v; want them found: %t", len(found), err, row.found)
			}
		})
	}
}

// nameServer starts a name server that answers every question with that many addresses,
// over TCP only.
func nameServer(t *testing.T, addresses int) string {
	t.Helper()
	stream, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	packets, err := net.ListenPacket("udp", stream.Addr().String())
	must(t, err)
	t.Cleanup(func() { _ = packets.Close() })
	go func() { // until the test ends
		question := make([]byte, 1500)
		for {
			n, from, err := packets.ReadFrom(question)
			if err != nil {
				return
			}
			if reply, err := answerTo(question[:n], 0); err == nil {
				_, _ = packets.WriteTo(reply, from)
			}
		}
	}()
	go func() {
		for {
			conn, err := stream.Accept()
			if err != nil {
				return
			}
			go func() { // until the resolver leaves
				defer func() { _ = conn.Close() }()
				_ = answerOn(conn, addresses)
			}()
		}
	}()
	return stream.Addr().String()
}

func answerOn(conn net.Conn, addresses int) error {
	return answerFramed(conn, func(question []byte) []byte {
		reply, _ := answerTo(question, addresses)
		return reply
	})
}

// answerFramed answers questions over TCP until the resolver leaves.
func answerFramed(conn net.Conn, answer func(question []byte) []byte) error {
	var size [2]byte
	for {
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return err
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return err
		}
		reply := answer(question)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil { //nolint:gosec // 64 KiB at most
			return err
		}
	}
}

// answerTo returns an answer with that many addresses. With none it says that it is
// truncated.
func answerTo(question []byte, addresses int) ([]byte, error) {
	var parser dnsmessage.Parser
	head, err := parser.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := parser.Question()
	if err != nil {
		return nil, err
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: head.ID, Response: true, Truncated: addresses == 0})
	b.EnableCompression()
	err = errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers())
	for i := range addresses {
		err = errors.Join(err, b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, dnsmessage.AResource{A: [4]byte{127, 1, byte(i >> 8), byte(i)}}))
	}
	if err != nil {
		return nil, err
	}
	return b.Finish()
}
