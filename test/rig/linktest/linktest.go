// Package linktest puts a Toxiproxy on loopback between a client and a server of a test.
package linktest

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Down is the stream of a link from the server to the client.
const Down = "downstream"

// Toxic is a fault of the network, as Toxiproxy names it.
type Toxic struct {
	Kind, Stream string
	Attributes   map[string]int
}

// Link is one Toxiproxy.
type Link struct {
	*testing.T
	proxy *toxiproxy.Proxy
}

// New starts a link to address that ends with the test.
func New(t *testing.T, address string) *Link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &Link{T: t, proxy: toxiproxy.NewProxy(server, "link", "127.0.0.1:0", address)}
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	return l
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

// Add adds the toxic to the link and to its connections.
func (l *Link) Add(x Toxic) {
	l.Helper()
	text, err := json.Marshal(map[string]any{"name": "toxic", "type": x.Kind, "stream": x.Stream, "toxicity": 1, "attributes": x.Attributes})
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		l.Fatalf("add %s: %v", text, err)
	}
}
