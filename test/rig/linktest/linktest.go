// Package linktest puts a Toxiproxy on loopback between a client and a server of a test.
package linktest

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"fetchd/test/wait"
)

// The streams of a link.
const (
	Up   = "upstream"   // from the client to the server
	Down = "downstream" // from the server to the client
)

// Toxic is a fault of the network, as Toxiproxy names it.
type Toxic struct {
	Kind, Stream string
	Attributes   map[string]int
}

// Link is one Toxiproxy with at most one toxic at a time. Its methods that fail report that
// to the test.
type Link struct {
	*testing.T
	server string
	proxy  *toxiproxy.Proxy
}

// New starts a link to address that ends with the test.
func New(t *testing.T, address string) *Link {
	t.Helper()
	l := &Link{T: t, server: address}
	l.start(hold(t))
	t.Cleanup(func() { l.proxy.Stop() })
	return l
}

// hold returns an address that no other process gets until the test ends, not even while
// [Link.Renew] has no listener there. An open connection of an earlier listener keeps the port.
func hold(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, end := range []func() (net.Conn, error){
		func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) },
		l.Accept,
	} {
		conn, err := end()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	return l.Addr().String()
}

func (l *Link) start(address string) {
	l.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	waiting, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), 5*time.Second)
	defer cancel()
	var err error
	if wait.Until(waiting, time.Millisecond, func() bool { // the old listener may not be closed yet
		l.proxy = toxiproxy.NewProxy(server, "link", address, l.server)
		err = l.proxy.Start()
		return err == nil
	}) != nil {
		l.Errorf("start the link at %s: %v", address, err)
	}
}

// Renew closes every connection and drops the toxics. Unlike [Link.Remove] it cannot hang: a
// Toxiproxy of which a toxic broke connections may wait for them when its toxics change.
func (l *Link) Renew() {
	l.Helper()
	l.proxy.Stop()
	l.start(l.proxy.Listen)
}

// Addr returns the address at which the link listens.
func (l *Link) Addr() netip.AddrPort {
	l.Helper()
	at, err := netip.ParseAddrPort(l.proxy.Listen)
	if err != nil {
		l.Fatal(err)
	}
	return at
}

// Prepare must be called before the connections are made to which the toxic will be added.
// Toxiproxy decides then how they will be closed, which matters for reset_peer.
func (l *Link) Prepare(x Toxic) {
	l.Helper()
	if x.Kind == "reset_peer" {
		l.put("manner", 0, x)
	}
}

// Add adds the toxic to the link and to its connections.
func (l *Link) Add(x Toxic) { l.Helper(); l.put("toxic", 1, x) }

func (l *Link) put(name string, toxicity int, x Toxic) {
	l.Helper()
	text, err := json.Marshal(map[string]any{"name": name, "type": x.Kind, "stream": x.Stream,
		"toxicity": toxicity, "attributes": x.Attributes})
	if err != nil {
		l.Errorf("toxic %s: %v", x.Kind, err)
	}
	if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		l.Errorf("add %s: %v", text, err)
	}
}

// Remove removes the toxic from the link.
func (l *Link) Remove() {
	l.Helper()
	if err := l.proxy.Toxics.RemoveToxic(l.Context(), "toxic"); err != nil {
		l.Errorf("remove the toxic: %v", err)
	}
}
