package fetch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/classify"
	"fetchd/fetch/conns"
)

// Resolver returns a resolver that uses the DNS server at address, or the system's if
// address is empty. It is Go's own resolver, because the C library's accepts "0x7f.1" as
// an address. A cancelled lookup closes its socket immediately.
func Resolver(address string) conns.Resolver {
	r := new(resolver)
	r.PreferGo = true
	r.Dial = func(ctx context.Context, network, server string) (net.Conn, error) {
		conn, err := dialServer(ctx, network, cmp.Or(address, server))
		if classify.NoDescriptor(err) {
			return nil, &noDescriptor{err}
		}
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() }) // the lookup ends ctx at its own end too
		if udp, ok := conn.(*net.UDPConn); ok {
			return &packets{UDPConn: udp}, nil
		}
		return &stream{Conn: conn}, nil
	}
	return r
}

// dialServer connects to a name server. A UDP socket, which does not wait, needs no dialer.
func dialServer(ctx context.Context, network, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || network != "udp" {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	return net.DialUDP(network, nil, net.UDPAddrFromAddrPort(at))
}

// noDescriptor is an error of a lookup for which there was no descriptor. [net.DNSError] has the text
// of most errors only, and unwraps to those that match the error of a context.
type noDescriptor struct{ error }

// Is makes the error match context.Canceled.
func (*noDescriptor) Is(target error) bool { return target == context.Canceled }

// Unwrap returns the cause.
func (e *noDescriptor) Unwrap() error { return e.error }

// resolver is Go's resolver, without two of its limits: it also finds names with labels that begin or end
// with a hyphen, and asks name servers that do not know EDNS.
type resolver struct{ net.Resolver }

// LookupNetIP implements [conns.Resolver].
func (r *resolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	addrs, err := r.Resolver.LookupNetIP(ctx, network, host) // finds any name in the hosts file
	name := disguise(host)
	if err == nil || name == host {
		return addrs, err
	}
	addrs, err = r.Resolver.LookupNetIP(ctx, network, name)
	if failed, ok := errors.AsType[*net.DNSError](err); ok {
		own := *failed // lookups of the same name at once share it
		own.Name = host
		return nil, &own
	}
	return addrs, err
}

// disguised is the end of names that stand for others. There are no real names below it (RFC 6761).
const disguised = "invalid."

// disguise returns a name for which Go's resolver makes a query. It makes none for a name with a label that
// begins or ends with a hyphen. H stands for such a hyphen, because real names have no upper case.
func disguise(name string) string {
	changed := strings.ReplaceAll(strings.ReplaceAll("."+name, ".-", ".H"), "-.", "H.")[1:]
	if changed == name || !strings.HasSuffix(name, ".") {
		return name
	}
	return changed + disguised
}

// query is a query of Go's resolver on its way to a name server.
type query struct {
	message []byte           // as it is sent
	name    *dnsmessage.Name // the one that Go knows; nil: that of message
}

// newQuery returns the query for a message of Go, with the name that a disguised one stands for.
func newQuery(message []byte) (query, error) {
	if !bytes.Contains(message, []byte("\x07invalid\x00")) {
		return query{message: message}, nil
	}
	var m dnsmessage.Message
	if err := m.Unpack(message); err != nil {
		return query{}, err
	}
	name := m.Questions[0].Name
	real := strings.ReplaceAll(strings.TrimSuffix(name.String(), disguised), "H", "-")
	if disguise(real) != name.String() {
		return query{message: message}, nil
	}
	m.Questions[0].Name = dnsmessage.MustNewName(real)
	message, err := m.Pack()
	return query{message, &name}, err
}

// withoutEDNS returns the message without its OPT record. Go puts it at the end, and it has 11 bytes.
func (q *query) withoutEDNS() []byte {
	const count = 11 // the lower byte of the number of additional records
	if q.message[count] == 0 {
		return q.message
	}
	message := bytes.Clone(q.message[:len(q.message)-11])
	message[count] = 0
	return message
}

// restore returns an answer for Go, with the name that Go knows.
func (q *query) restore(answer []byte) []byte {
	if q.name == nil {
		return answer
	}
	var m dnsmessage.Message
	if m.Unpack(answer) != nil || len(m.Questions) != 1 || !strings.EqualFold(disguise(m.Questions[0].Name.String()), q.name.String()) {
		return answer // Go ignores it
	}
	m.Questions[0].Name = *q.name
	restored, err := m.Pack()
	if err != nil {
		return answer
	}
	return restored
}

// isRefused reports whether an answer is one of a server that does not know EDNS. Such a server should answer
// FORMERR (RFC 6891 section 7). Others answer NOTIMP, SERVFAIL or REFUSED, or with something that is no answer.
func (q *query) isRefused(answer []byte) bool {
	if len(answer) < 2 || !bytes.Equal(answer[:2], q.message[:2]) {
		return false // Go ignores it
	}
	var p dnsmessage.Parser
	head, err := p.Start(answer)
	if head.Truncated {
		return false
	}
	if err := cmp.Or(err, p.SkipAllQuestions(), p.SkipAllAnswers(), p.SkipAllAuthorities()); err != nil {
		return true
	}
	code, knows := head.RCode, false
	for h, err := p.AdditionalHeader(); err == nil; h, err = p.AdditionalHeader() {
		if h.Type == dnsmessage.TypeOPT {
			code, knows = h.ExtendedRCode(code), true
		}
		if err := p.SkipAdditional(); err != nil {
			return true
		}
	}
	switch code {
	case dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError:
		return false
	case dnsmessage.RCodeServerFailure, dnsmessage.RCodeRefused:
		return !knows
	}
	return true
}

// patience is how long a name server has for a query with EDNS, before it gets one without. Some drop what they
// do not know.
const patience = 250 * time.Millisecond

// packets is a UDP socket for one query.
type packets struct {
	*net.UDPConn
	query    query
	deadline time.Time
	plain    bool // the query was sent without EDNS too
	refused  bool // the query with EDNS was
}

// SetDeadline implements net.Conn. It is called before Write.
func (c *packets) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.UDPConn.SetDeadline(t)
}

// Write implements net.Conn.
func (c *packets) Write(p []byte) (n int, err error) {
	if c.query, err = newQuery(p); err != nil {
		return 0, err
	}
	if _, err := c.UDPConn.Write(c.query.message); err != nil {
		return 0, err
	}
	return len(p), c.SetReadDeadline(time.Now().Add(patience))
}

// Read implements net.Conn.
func (c *packets) Read(p []byte) (int, error) {
	for {
		n, err := c.UDPConn.Read(p)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.plain:
		case err != nil:
			return n, err
		case !c.refused && c.query.isRefused(p[:n]):
			c.refused = true
		default:
			return copy(p, c.query.restore(p[:n])), nil
		}
		if c.plain {
			continue
		}
		c.plain = true
		if _, err := c.UDPConn.Write(c.query.withoutEDNS()); err != nil {
			return 0, err
		}
		if err := c.SetReadDeadline(c.deadline); err != nil {
			return 0, err
		}
	}
}

// maxDNSBytes is the maximum length of an answer of a name server over TCP. DNS allows 64 KiB.
// Go would open a socket for each of up to 4,000 addresses to sort them, but a dial tries only 20.
const maxDNSBytes = 4 << 10

// stream is a TCP connection for one query, without EDNS: that has a meaning only over UDP.
type stream struct {
	net.Conn
	query  query
	answer *bytes.Reader // nil: not read
}

// Write implements net.Conn.
func (c *stream) Write(p []byte) (n int, err error) {
	if c.query, err = newQuery(p[2:]); err != nil {
		return 0, err
	}
	if _, err := c.Conn.Write(framed(c.query.withoutEDNS())); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read implements net.Conn. It fails if the answer is longer than maxDNSBytes.
func (c *stream) Read(p []byte) (int, error) {
	if c.answer == nil {
		var size [2]byte
		if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
			return 0, err
		}
		answer := make([]byte, binary.BigEndian.Uint16(size[:]))
		if len(answer) > maxDNSBytes {
			return 0, io.ErrUnexpectedEOF
		}
		if _, err := io.ReadFull(c.Conn, answer); err != nil {
			return 0, err
		}
		c.answer = bytes.NewReader(framed(c.query.restore(answer)))
	}
	return c.answer.Read(p)
}

// framed returns a message with its length before it.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...) //nolint:gosec // at most maxDNSBytes
}
