package toxic

import "fetchd/test/rig/linktest"

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

func (x toxic) asLink() linktest.Toxic {
	return linktest.Toxic{Kind: x.kind, Stream: x.stream, Attributes: x.attributes}
}

// prepare adds the toxic if it takes effect at once, and otherwise prepares the link for it.
func (x toxic) prepare(l *linktest.Link) {
	l.Helper()
	if x.when == atOnce {
		l.Add(x.asLink())
	} else {
		l.Prepare(x.asLink())
	}
}
