package classify_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer starts a DNS server that answers every query with the code, or not
// at all if silent is set. It returns a resolver that uses only this server.
func nameServer(t *testing.T, code dnsmessage.RCode, silent bool) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if reply := answer(buffer[:n], code); reply != nil && !silent {
				_, _ = server.WriteTo(reply, from)
			}
		}
	}()
	return resolver(t, "udp", server.LocalAddr().String())
}

// answer returns the query with a code and no records, or nil if it is malformed.
func answer(question []byte, code dnsmessage.RCode) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil {
		return nil
	}
	m.Response, m.RCode, m.Additionals = true, code, nil
	m.RecursionAvailable = true
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// resolver returns a resolver that uses only addr. Its queries end with the test;
// otherwise those of a cancelled lookup would keep waiting.
func resolver(t *testing.T, network, addr string) *net.Resolver {
	t.Helper()
	var (
		mu    sync.Mutex
		open  []net.Conn
		ended bool
	)
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return nil, net.ErrClosed
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err == nil {
			open = append(open, conn)
		}
		return conn, err
	}}
}

// lookupError looks up a name that no search list can change.
func lookupError(ctx context.Context, t *testing.T, r *net.Resolver) error {
	t.Helper()
	addrs, err := r.LookupHost(ctx, "origin.invalid.")
	if err == nil {
		t.Fatalf("lookup gives %v, want an error", addrs)
	}
	return err
}
