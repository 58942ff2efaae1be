package conversion

import (
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
)

// Encoded has the effective request of requests that set nothing but a URL, encoded and without the URL, for each mode
// with the limits of the last call. To make and to encode the message needs more time than the conversion of the rest.
type Encoded struct{ streams, unary atomic.Pointer[encodedRest] }

type encodedRest struct {
	limits *Limits
	events fetch.Level
	mode   Mode
	rest   []byte // what follows the URL
}

// Add adds the effective request to m, which has a field effective_request: to its unknown fields, so that the receiver
// finds it like any other field, but m itself has none. It reports whether p has such a request. e may be nil.
func (e *Encoded) Add(m proto.Message, p *Prepared) bool {
	if e == nil || p.defaults == nil {
		return false
	}
	known := &e.unary
	if p.mode.streams {
		known = &e.streams
	}
	of := known.Load()
	if of == nil || of.limits != p.defaults || of.events != p.Events || of.mode != p.mode {
		all := p.Effective()
		whole := make([]byte, all.SizeVT())
		if _, err := all.MarshalToSizedBufferVT(whole); err != nil {
			return false
		}
		_, _, n := protowire.ConsumeField(whole) // the URL has the number 1
		of = &encodedRest{p.defaults, p.Events, p.mode, whole[max(n, 0):]}
		known.Store(of)
	}
	to := m.ProtoReflect()
	number := to.Descriptor().Fields().ByName("effective_request").Number()
	url := p.Request.URL.String()
	size := 1 + protowire.SizeBytes(len(url)) + len(of.rest)
	b := protowire.AppendTag(make([]byte, 0, 8+size), number, protowire.BytesType)
	b = protowire.AppendTag(protowire.AppendVarint(b, uint64(size)), urlField, protowire.BytesType)
	to.SetUnknown(append(protowire.AppendString(b, url), of.rest...))
	return true
}

// urlField is the number of the URL in a request.
const urlField protowire.Number = 1
