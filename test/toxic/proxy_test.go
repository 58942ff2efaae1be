package toxic

import (
	"net/netip"
	"testing"

	"fetchd/test/rig/linktest"
)

const up, down = linktest.Up, linktest.Down

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
	link *linktest.Link
}

// newProxy starts a proxy for address until the test ends.
func newProxy(t *testing.T, address string) *proxy {
	t.Helper()
	return &proxy{t, linktest.New(t, address)}
}

// addr returns the address of the proxy.
func (p *proxy) addr() netip.AddrPort { return p.link.Addr() }

// prepare adds the toxic if it takes effect at once, and otherwise prepares the link for it.
func (p *proxy) prepare(x toxic) {
	p.Helper()
	if x.when == atOnce {
		p.add(x)
	} else {
		p.link.Prepare(x.asLink())
	}
}

// add adds the toxic to the link and to its connections.
func (p *proxy) add(x toxic) { p.Helper(); p.link.Add(x.asLink()) }

// remove removes the toxic from the link.
func (p *proxy) remove() { p.Helper(); p.link.Remove() }

func (x toxic) asLink() linktest.Toxic {
	return linktest.Toxic{Kind: x.kind, Stream: x.stream, Attributes: x.attributes}
}

// loopback is the range that the egress policy must allow.
func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
