package fetch_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/fetch"
)

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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	packets, err := net.ListenPacket("udp", stream.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
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
	var size [2]byte
	for {
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return err
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return err
		}
		reply, err := answerTo(question, addresses)
		if err != nil {
			return err
		}
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
