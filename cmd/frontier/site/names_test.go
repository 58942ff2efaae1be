package site_test

import (
	"crypto/rand"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"fetchd/cmd/frontier/site"
)

func TestResolver(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	for _, tc := range []struct {
		name, network, host string
		want                []string // nil if the host does not exist
	}{
		{"host", "ip", "h1.demo.test", []string{"127.0.0.1"}},
		{"deep", "ip4", "a.b.c.demo.test.", []string{"127.0.0.1"}},
		{"upper case", "ip4", "H1.Demo.TEST", []string{"127.0.0.1"}},
		{"no IPv6", "ip6", "h1.demo.test", nil},
		{"gone", "ip", "gone-3.demo.test", nil},
		{"suffix", "ip", "demo.test.", nil},
		{"elsewhere", "ip", "h1.example.test.", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addrs, err := s.Resolver().LookupNetIP(t.Context(), tc.network, tc.host)
			var found []string
			for _, a := range addrs {
				found = append(found, a.Unmap().String())
			}
			if diff := cmp.Diff(tc.want, found); diff != "" {
				t.Errorf("LookupNetIP(%s, %s): %v (-want +got):\n%s", tc.network, tc.host, err, diff)
			}
			if dns, ok := errors.AsType[*net.DNSError](err); tc.want == nil && (!ok || !dns.IsNotFound) {
				t.Errorf("LookupNetIP(%s, %s) error = %v, want one that is not found", tc.network, tc.host, err)
			}
		})
	}
}

func TestNameServerCodes(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	for _, tc := range []struct {
		name    string
		ask     string
		kind    dnsmessage.Type
		class   dnsmessage.Class
		op      dnsmessage.OpCode
		code    dnsmessage.RCode
		answers int
	}{
		{name: "A", ask: "h1.demo.test.", kind: dnsmessage.TypeA, answers: 1},
		{name: "AAAA", ask: "h1.demo.test.", kind: dnsmessage.TypeAAAA},
		{name: "MX", ask: "h1.demo.test.", kind: dnsmessage.TypeMX},
		{name: "other class", ask: "h1.demo.test.", kind: dnsmessage.TypeA, class: dnsmessage.ClassCHAOS},
		{name: "suffix", ask: "demo.test.", kind: dnsmessage.TypeA},
		{name: "gone", ask: "gone.demo.test.", kind: dnsmessage.TypeA, code: dnsmessage.RCodeNameError},
		{name: "gone with a number", ask: "GONE-3.demo.test.", kind: dnsmessage.TypeA, code: dnsmessage.RCodeNameError},
		{name: "gone, AAAA", ask: "gone-3.demo.test.", kind: dnsmessage.TypeAAAA, code: dnsmessage.RCodeNameError},
		{name: "under gone", ask: "a.gone.demo.test.", kind: dnsmessage.TypeA, code: dnsmessage.RCodeNameError},
		{name: "begins like gone", ask: "goner.demo.test.", kind: dnsmessage.TypeA, answers: 1},
		{name: "ends like the suffix", ask: "h1.xdemo.test.", kind: dnsmessage.TypeA, code: dnsmessage.RCodeNameError},
		{name: "root", ask: ".", kind: dnsmessage.TypeA, code: dnsmessage.RCodeNameError},
		{name: "not a query", ask: "h1.demo.test.", kind: dnsmessage.TypeA, op: 5, code: dnsmessage.RCodeNotImplemented},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			q := dnsmessage.Question{Name: dnsmessage.MustNewName(tc.ask), Type: tc.kind, Class: dnsmessage.ClassINET}
			if tc.class != 0 {
				q.Class = tc.class
			}
			conn := dialNames(t, s)
			send(t, conn, pack(t, dnsmessage.Message{
				Header: dnsmessage.Header{ID: 7, OpCode: tc.op}, Questions: []dnsmessage.Question{q},
			}))
			m := receive(t, conn)
			if m.ID != 7 || !m.Response || m.RCode != tc.code || len(m.Answers) != tc.answers {
				t.Errorf("%s %v: ID %d, response %t, %v, %d answers; want ID 7, a response, %v, %d answers",
					tc.ask, q.Type, m.ID, m.Response, m.RCode, len(m.Answers), tc.code, tc.answers)
			}
		})
	}
}

func TestNameServerGarbage(t *testing.T) {
	t.Parallel()
	s := start(t, site.Config{})
	question := dnsmessage.Question{
		Name: dnsmessage.MustNewName("h1.demo.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}
	whole := pack(t, dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: []dnsmessage.Question{question}})
	answer := pack(t, dnsmessage.Message{
		Header: dnsmessage.Header{ID: 2, Response: true}, Questions: []dnsmessage.Question{question},
	})
	noise := make([]byte, 6000)
	_, _ = rand.Read(noise) // never fails
	noise[2] |= 0x80        // a response, whatever else it contains
	for _, tc := range []struct {
		name     string
		datagram []byte
	}{
		{"empty", nil},
		{"one byte", []byte{0}},
		{"half a question", whole[:len(whole)-3]},
		{"no question", pack(t, dnsmessage.Message{Header: dnsmessage.Header{ID: 3}})},
		{"an answer", answer},
		{"a loop of pointers", append(append([]byte{}, whole[:12]...), 0xc0, 12, 0, 1, 0, 1)},
		{"noise, longer than any question", noise},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			conn := dialNames(t, s)
			send(t, conn, tc.datagram)
			send(t, conn, pack(t, dnsmessage.Message{
				Header: dnsmessage.Header{ID: 9}, Questions: []dnsmessage.Question{question},
			}))
			if m := receive(t, conn); m.ID != 9 || len(m.Answers) != 1 {
				t.Errorf("first reply after %s: ID %d with %d answers, want ID 9 with 1", tc.name, m.ID, len(m.Answers))
			}
		})
	}
}

// The test is not parallel, because another site could get the port.
func TestResolverAfterClose(t *testing.T) {
	s := start(t, site.Config{})
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if addrs, err := s.Resolver().LookupHost(t.Context(), "h1.demo.test."); err == nil {
		t.Errorf("LookupHost after Close = %v, want an error", addrs)
	}
}

func dialNames(t *testing.T, s *site.Site) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "udp", s.NameServer())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func pack(t *testing.T, m dnsmessage.Message) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatalf("Pack: %v", err)
	}
	return b
}

func send(t *testing.T, conn net.Conn, datagram []byte) {
	t.Helper()
	if _, err := conn.Write(datagram); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// receive has a long timeout, which only ends a broken test.
func receive(t *testing.T, conn net.Conn) dnsmessage.Message {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatalf("no reply: %v", err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b[:n]); err != nil {
		t.Fatalf("Unpack: %v", err)
	}
	return m
}
