package fetch_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/fetch"
)

// oldServer is a name server on loopback that knows no EDNS, and has one address for every name that begins with
// "dash" or has a label "a".
type oldServer struct {
	refuse    refusal // answers queries with EDNS; nil: they are answered like others
	isLate    bool    // the refusal comes after the query without EDNS
	truncates bool    // it answers only over TCP

	address string
	plain   atomic.Int64 // queries without EDNS
	late    []byte       // the refusal that is late
}

// refusal answers a query with EDNS. Nil means no answer.
type refusal func(query []byte, m dnsmessage.Message) []byte

// start starts the name server until the end of the test.
func (o *oldServer) start(t *testing.T) *oldServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	packets, err := net.ListenPacket("udp", l.Addr().String())
	must(t, err)
	o.address = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, reply := range o.answers(buf[:n]) {
				_, _ = packets.WriteTo(reply, from)
			}
		}
	}()
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = answerFramed(conn, func(query []byte) []byte { return o.answer(query, false) })
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_, _ = packets.Close(), l.Close()
		<-done
		<-served
	})
	return o
}

// answers returns the answers to a query over UDP. If the last refusal is late, it comes before the answer to the query
// without EDNS.
func (o *oldServer) answers(query []byte) [][]byte {
	answer, late := o.answer(query, o.truncates), o.late
	switch {
	case answer == nil:
		return nil
	case o.isLate && o.plain.Load() == 0:
		o.late = answer
		return nil
	case late != nil:
		return [][]byte{late, answer}
	}
	return [][]byte{answer}
}

func (o *oldServer) answer(query []byte, truncates bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	if len(m.Additionals) > 0 && o.refuse != nil {
		return o.refuse(query, m)
	}
	o.plain.Add(1)
	name := m.Questions[0].Name
	m.Response, m.RecursionAvailable, m.Truncated = true, true, truncates
	switch {
	case !strings.HasPrefix(name.String(), "dash") && !strings.Contains(name.String(), "a"):
		m.RCode = dnsmessage.RCodeNameError
	case m.Questions[0].Type == dnsmessage.TypeA && !truncates:
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
	reply, _ := m.Pack()
	return reply
}

// withCode returns a refusal with a code. With an OPT record, it is in that.
func withCode(code dnsmessage.RCode, opt bool) refusal {
	return func(_ []byte, m dnsmessage.Message) []byte {
		m.Response, m.RecursionAvailable, m.RCode, m.Additionals = true, true, code&0xf, nil
		if opt {
			r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
			_ = r.Header.SetEDNS0(1232, code, false)
			m.Additionals = []dnsmessage.Resource{r}
		}
		reply, _ := m.Pack()
		return reply
	}
}

// TestNameServersWithoutEDNS checks that a name server that does not know EDNS is asked without it, however it
// fails.
func TestNameServersWithoutEDNS(t *testing.T) {
	t.Parallel()
	header := func(q []byte, code byte, count byte) []byte {
		return []byte{q[0], q[1], 0x81, 0x80 | code, 0, count, 0, 0, 0, 0, 0, 0}
	}
	for _, row := range []struct {
		name   string
		refuse refusal
	}{
		{"FORMERR", withCode(dnsmessage.RCodeFormatError, false)},
		{"FORMERR with an OPT record", withCode(dnsmessage.RCodeFormatError, true)},
		{"FORMERR without the question", func(q []byte, _ dnsmessage.Message) []byte { return header(q, 1, 0) }},
		{"FORMERR that counts a question which is not there", func(q []byte, _ dnsmessage.Message) []byte { return header(q, 1, 1) }},
		{"NOTIMP", withCode(dnsmessage.RCodeNotImplemented, false)},
		{"SERVFAIL", withCode(dnsmessage.RCodeServerFailure, false)},
		{"REFUSED", withCode(dnsmessage.RCodeRefused, false)},
		{"BADVERS", withCode(16, true)},
		{"the query", func(q []byte, _ dnsmessage.Message) []byte { return q }},
		{"half a header", func(q []byte, _ dnsmessage.Message) []byte { return q[:6] }},
		{"no answer", func([]byte, dnsmessage.Message) []byte { return nil }},
		{"FORMERR too late", withCode(dnsmessage.RCodeFormatError, false)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := (&oldServer{refuse: row.refuse, isLate: row.name == "FORMERR too late"}).start(t)
			addrs, err := fetch.Resolver(server.address).LookupNetIP(t.Context(), "ip4", "dash.test.")
			if err != nil || len(addrs) != 1 || addrs[0] != netip.MustParseAddr("127.0.0.1") || server.plain.Load() != 1 {
				t.Errorf("%v, %v after %d queries without EDNS, want one address after one", addrs, err, server.plain.Load())
			}
		})
	}
}

// TestNameServersWithEDNS checks that a name server that knows EDNS gets no query without it.
func TestNameServersWithEDNS(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		code     dnsmessage.RCode
		opt      bool
		notFound bool
	}{
		{"NXDOMAIN", dnsmessage.RCodeNameError, true, true},
		{"NXDOMAIN without an OPT record", dnsmessage.RCodeNameError, false, true},
		{"no address", dnsmessage.RCodeSuccess, true, true},
		{"SERVFAIL", dnsmessage.RCodeServerFailure, true, false},
		{"REFUSED", dnsmessage.RCodeRefused, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := (&oldServer{refuse: withCode(row.code, row.opt)}).start(t)
			_, err := fetch.Resolver(server.address).LookupNetIP(t.Context(), "ip4", "dash.test.")
			dns, ok := errors.AsType[*net.DNSError](err)
			if !ok || dns.IsNotFound != row.notFound || server.plain.Load() != 0 {
				t.Errorf("%v after %d queries without EDNS, want not found: %t, and no such query", err, server.plain.Load(), row.notFound)
			}
		})
	}
}

// TestNamesWithHyphens checks that names with labels that begin or end with a hyphen are looked up.
func TestNamesWithHyphens(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 62) + "-."
	for _, row := range []struct {
		name  string
		found bool
	}{
		{"dash-.test.", true},
		{"-a.test.", true},
		{"-a-.-.--a--.test.", true},
		{"a-.", true},
		{"a-.invalid.", true},
		{"a-b.invalid.", true},
		{long + long + long + "test.", true},
		{"b-.test.", false},
	} {
		for _, server := range []*oldServer{{}, {refuse: withCode(dnsmessage.RCodeFormatError, false)}, {truncates: true}} {
			addrs, err := fetch.Resolver(server.start(t).address).LookupNetIP(t.Context(), "ip4", row.name)
			if (err == nil) != row.found || row.found && len(addrs) != 1 {
				t.Errorf("%s: %v, %v, want an address: %t", row.name, addrs, err, row.found)
			}
			if dns, ok := errors.AsType[*net.DNSError](err); ok && (dns.Name != row.name || !dns.IsNotFound) {
				t.Errorf("%s: %v, want an error that names it", row.name, err)
			}
		}
	}
}
