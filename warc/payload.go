package warc

import (
	"bytes"
	"hash"
	"math"
	"strings"
)

// payloadSum computes the digest of a payload. The payload of an HTTP message is its content: the
// chunked transfer coding is removed, as ISO 28500 has it. If the chunks are not whole, the digest
// is that of the bytes as they were sent.
type payloadSum struct {
	algorithm Algorithm
	head      headEnd
	sent      hash.Hash
	content   hash.Hash // nil before the first message in chunks
	chunks    chunks
}

// reset prepares the sum for another block. http reports whether the block is an HTTP message.
func (s *payloadSum) reset(http bool) {
	s.sent.Reset()
	if s.content != nil {
		s.content.Reset()
	}
	s.head, s.chunks = headEnd{ended: !http}, chunks{}
}

func (s *payloadSum) write(p []byte) {
	p = s.head.skip(p)
	s.sent.Write(p)
	if !s.head.chunked || len(p) == 0 {
		return
	}
	if s.content == nil {
		s.content = s.algorithm.hash()
	}
	s.chunks.write(p, s.content)
}

// sum returns the hash of the payload so far.
func (s *payloadSum) sum() hash.Hash {
	if s.chunks.state == chunkEnd {
		return s.content
	}
	return s.sent
}

// headEnd finds the end of an HTTP head: the first empty line. Lines end with LF; a CR before it
// belongs to the end of the line.
type headEnd struct {
	line    [64]byte // how the current line starts
	n       int      // bytes of the current line, without its LF
	ended   bool
	coded   bool // the last field is Transfer-Encoding
	chunked bool // there are chunks; at the end of the head: and no other transfer coding
	other   bool // there is another transfer coding, or what looks like one
}

// skip returns what of p is behind the head.
func (h *headEnd) skip(p []byte) []byte {
	for !h.ended && len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			h.add(p)
			return nil
		}
		h.add(p[:i])
		p = p[i+1:]
		h.endLine()
	}
	return p
}

// add adds bytes to the current line.
func (h *headEnd) add(p []byte) {
	copy(h.line[min(h.n, len(h.line)):], p)
	h.n += len(p)
}

func (h *headEnd) endLine() {
	start := h.line[:min(h.n, len(h.line))]
	switch {
	case h.n == 0 || h.n == 1 && start[0] == '\r':
		h.ended = true
		h.chunked = h.chunked && !h.other
	case start[0] == ' ' || start[0] == '\t': // it continues the last line
		h.other = h.other || h.coded
	default:
		name, value, _ := bytes.Cut(start, []byte(":"))
		h.coded = bytes.EqualFold(bytes.TrimRight(name, " \t"), []byte("transfer-encoding"))
		if !h.coded {
			break
		}
		only := h.n <= len(h.line) && !h.chunked && bytes.EqualFold(bytes.Trim(value, " \t\r"), []byte("chunked"))
		h.chunked, h.other = h.chunked || only, h.other || !only
	}
	h.n = 0
}

// chunks removes the chunked transfer coding (RFC 9112 section 7.1). It stores nothing of what it
// reads, so sizes, extensions and trailers need no limit.
type chunks struct {
	state chunkState
	size  uint64 // of the chunk; then what is left of it
}

type chunkState byte

const (
	chunkStart       chunkState = iota // before the first digit of the size
	chunkSize                          // after a digit
	chunkSpace                         // after white space behind the size
	chunkExtension                     // after ";"
	chunkSizeEnd                       // after the CR of the line of the size
	chunkData                          // in the content
	chunkDataEnd                       // after the content
	chunkDataCR                        // after the CR behind the content
	chunkTrailer                       // at the start of a line of the trailer
	chunkTrailerCR                     // after a CR at the start of a line of the trailer
	chunkTrailerLine                   // in a line of the trailer
	chunkEnd                           // after the trailer
	chunkBroken                        // these are no chunks, or something follows them
)

// write adds the content of the chunks in p to content.
func (c *chunks) write(p []byte, content hash.Hash) {
	for len(p) > 0 && c.state != chunkBroken {
		if c.state != chunkData {
			c.state = c.next(p[0])
			p = p[1:]
			continue
		}
		data := p[:min(c.size, uint64(len(p)))]
		content.Write(data)
		p = p[len(data):]
		if c.size -= uint64(len(data)); c.size == 0 {
			c.state = chunkDataEnd
		}
	}
}

// next returns the state after b, which is not content.
func (c *chunks) next(b byte) chunkState {
	switch c.state {
	case chunkStart, chunkSize, chunkSpace, chunkExtension, chunkSizeEnd:
		return c.nextInSize(b)
	case chunkDataEnd:
		return expect(b, '\r', chunkDataCR)
	case chunkDataCR:
		return expect(b, '\n', chunkStart)
	case chunkTrailerCR:
		if b == '\n' {
			return chunkEnd
		}
		return chunkTrailerLine
	case chunkTrailer:
		switch b {
		case '\r':
			return chunkTrailerCR
		case '\n':
			return chunkEnd
		}
		return chunkTrailerLine
	case chunkTrailerLine:
		if b == '\n' {
			return chunkTrailer
		}
		return chunkTrailerLine
	}
	return chunkBroken
}

// nextInSize returns the state after a byte of a line that has the size of a chunk.
func (c *chunks) nextInSize(b byte) chunkState {
	if c.state == chunkSizeEnd {
		switch {
		case b != '\n':
			return chunkBroken
		case c.size == 0:
			return chunkTrailer
		}
		return chunkData
	}
	digit := strings.IndexByte("0123456789abcdef", b|0x20)
	if b < '0' || c.state != chunkStart && c.state != chunkSize {
		digit = -1
	}
	switch {
	case digit >= 0 && c.size > math.MaxInt64>>4:
		return chunkBroken
	case digit >= 0:
		c.size = c.size<<4 | uint64(digit)
		return chunkSize
	case c.state == chunkStart || b == '\n':
		return chunkBroken
	case b == '\r':
		return chunkSizeEnd
	case c.state == chunkExtension || b == ';':
		return chunkExtension
	case b == ' ' || b == '\t':
		return chunkSpace
	}
	return chunkBroken
}

func expect(b, want byte, state chunkState) chunkState {
	if b != want {
		return chunkBroken
	}
	return state
}
