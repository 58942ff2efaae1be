package toxic

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"fetchd/conformance/origin"
)

const (
	up   = "upstream"   // What the client sends.
	down = "downstream" // What it is sent.
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
	afterRequest        // When the origin has read the request.
	inBody              // When the head of the response has been read.
)

// proxy is one Toxiproxy on loopback.
type proxy struct {
	*testing.T
	proxy *toxiproxy.Proxy
}

// newProxy stands in front of address until the test ends.
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

// addr is where the proxy listens.
func (p *proxy) addr() netip.AddrPort {
	p.Helper()
	at, err := netip.ParseAddrPort(p.proxy.Listen)
	if err != nil {
		p.Fatal(err)
	}
	return at
}

// prepare puts the toxic on the link, if it is to take effect at once. For a
// later reset_peer it sets how connections are closed, which is settled when
// they are made.
func (p *proxy) prepare(x toxic) {
	p.Helper()
	switch {
	case x.when == atOnce:
		p.add(x)
	case x.kind == "reset_peer":
		p.put("manner", 0, x)
	}
}

// add puts the toxic on the link and on its connections.
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

// remove takes the toxic off the link.
func (p *proxy) remove() {
	p.Helper()
	if err := p.proxy.Toxics.RemoveToxic(p.Context(), "toxic"); err != nil {
		p.Errorf("remove the toxic: %v", err)
	}
}

// newOrigin serves until the test ends.
func newOrigin(t *testing.T) *origin.Origin {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// loopback is what the egress policy must open here.
func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
