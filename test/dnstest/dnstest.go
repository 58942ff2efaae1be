// Package dnstest is a name server for tests.
package dnstest

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Serve starts a name server until the test ends, and returns its address. It knows the IPv4 addresses of some
// names; no other name exists.
func Serve(t testing.TB, addresses map[string]string) string {
	t.Helper()
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { serve(conn, addresses) })
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return conn.LocalAddr().String()
}

// serve answers queries until the connection is closed.
func serve(conn net.PacketConn, addresses map[string]string) {
	buf := make([]byte, 4<<10)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		address, ok := addresses[strings.TrimSuffix(q.Name.String(), ".")]
		switch {
		case !ok:
			m.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body: &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()}}}
		}
		if answer, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(answer, from) // the client asks again
		}
	}
}
