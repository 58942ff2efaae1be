package toxic

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

const (
	up   = "upstream"   // from the client to the server
	down = "downstream" // from the server to the client
)

// toxic is a fault of the network, as Toxiproxy names it.
type toxic struct {
	kind, stream string
	attributes   map[string]int
	when         moment
}

// moment is when a toxic takes effect.
type moment uint8

const (
	atOnce       moment = iota
	afterRequest        // when the origin has read the request
	inBody              // when the head of the response was read
)

// proxy is one Toxiproxy on loopback.
type proxy struct {
	*testing.T
	proxy *toxiproxy.Proxy
}

// newProxy starts a proxy for address until the test ends.
func newProxy(t *testing.T, address string) *proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{t, toxiproxy.NewProxy(server, "link", "127.0.0.1:0", address)}
	if err := p.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.proxy.Stop)
	return p
}

// addr returns the address of the proxy.
func (p *proxy) addr() netip.AddrPort {
	p.Helper()
	at, err := netip.ParseAddrPort(p.proxy.Listen)
	if err != nil {
		p.Fatal(err)
	}
	return at
}

// prepare adds the toxic if it takes effect at once. For a later reset_peer it sets how
// connections are closed, because Toxiproxy decides that when they are made.
func (p *proxy) prepare(x toxic) {
	p.Helper()
	switch {
	case x.when == atOnce:
		p.add(x)
	case x.kind == "reset_peer":
		p.put("manner", 0, x)
	}
}

// add adds the toxic to the link and to its connections.
func (p *proxy) add(x toxic) { p.Helper(); p.put("toxic", 1, x) }

func (p *proxy) put(name string, toxicity int, x toxic) {
	p.Helper()
	text, err := json.Marshal(map[string]any{"name": name, "type": x.kind, "stream": x.stream,
		"toxicity": toxicity, "attributes": x.attributes})
	if err != nil {
		p.Errorf("toxic %s: %v", x.kind, err)
	}
	if _, err := p.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		p.Errorf("add %s: %v", text, err)
	}
}

// remove removes the toxic from the link.
func (p *proxy) remove() {
	p.Helper()
	if err := p.proxy.Toxics.RemoveToxic(p.Context(), "toxic"); err != nil {
		p.Errorf("remove the toxic: %v", err)
	}
}

// loopback is the range that the egress policy must allow.
func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
