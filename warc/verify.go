package warc

import (
	"bytes"
	"hash"
	"strings"
)

// Verdict is the result of comparing a digest of a record with its bytes.
type Verdict int

const (
	// NotChecked means that the record has no such digest, that its algorithm is not known, or that
	// the record does not contain the bytes. A revisit record and the segments of a record do not contain the payload
	// that their digest is about.
	NotChecked Verdict = iota
	// Matches means that the bytes have the digest.
	Matches
	// Differs means that the bytes have another digest. The record was changed or written wrongly.
	Differs
	// MatchesAsSent means that the bytes have the digest with their chunks, which the standard
	// excludes from a payload. wget and warcio write such digests.
	MatchesAsSent
)

func (v Verdict) String() string {
	return [...]string{"not checked", "matches", "differs", "matches as sent"}[v]
}

// payload says where the payload of a record is.
type payload int

const (
	payloadNone  payload = iota // it has none, or not in its block
	payloadBlock                // it is the block
	payloadHTTP                 // it follows the head of the HTTP message in the block
)

func payloadOf(h *Header) payload {
	switch h.Type {
	case Resource, Conversion:
		if h.SegmentNumber == 0 {
			return payloadBlock
		}
	case Request, Response:
		mediaType, _, _ := strings.Cut(h.ContentType, ";")
		if h.SegmentNumber == 0 && strings.EqualFold(strings.Trim(mediaType, " \t"), "application/http") {
			return payloadHTTP
		}
	}
	return payloadNone
}

// sums computes the digests that a record has. Those that it does not compute are nil.
type sums struct {
	block   hash.Hash
	payload *payloadSum
}

func newSums(h *Header) *sums {
	s := &sums{block: h.BlockDigest.Algorithm().hash()}
	where := payloadOf(h)
	if a := h.PayloadDigest.Algorithm(); where != payloadNone && a.Size() > 0 {
		s.payload = &payloadSum{algorithm: a, sent: a.hash(), head: headEnd{ended: where == payloadBlock}}
	}
	return s
}

func (s *sums) write(p []byte) {
	if s.block != nil {
		s.block.Write(p)
	}
	if s.payload != nil {
		s.payload.write(p)
	}
}

func (s *sums) verdicts(h *Header) (block, payload Verdict) {
	block = verdict(h.BlockDigest, s.block)
	if s.payload == nil {
		return block, NotChecked
	}
	payload = verdict(h.PayloadDigest, s.payload.sum())
	if payload == Differs && verdict(h.PayloadDigest, s.payload.sent) == Matches {
		payload = MatchesAsSent
	}
	return block, payload
}

func verdict(want Digest, got hash.Hash) Verdict {
	if got == nil {
		return NotChecked
	}
	if sum, ok := want.Sum(); !ok || !bytes.Equal(sum, got.Sum(nil)) {
		return Differs
	}
	return Matches
}
