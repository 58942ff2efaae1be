package conns

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
)

// statusLines matches the status lines that http.ReadResponse accepts.
var statusLines = regexp.MustCompile(`^HTTP/\d\.\d +[-+\d]\d\d(?: |\r?\n)`)

// heads has the buffers into which response heads are copied.
var heads = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readOneHead reads a response head. It marks framing that the origin and something before it may
// read differently as faulty.
func (x *Exchange) readOneHead(req *http.Request) (*http.Response, error) {
	text, _ := heads.Get().(*bytes.Buffer)
	lines, _ := readers.Get().(*bufio.Reader)
	defer func() {
		lines.Reset(nil)
		readers.Put(lines)
		if text.Cap() <= readBytes {
			heads.Put(text)
		}
	}()
	text.Reset()
	old, broken := x.copyHead(text)
	lines.Reset(text)
	resp, err := http.ReadResponse(lines, req)
	if broken != nil && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = noEOF(broken)
	}
	if err != nil {
		return nil, err
	}
	if old {
		resp.Proto, resp.ProtoMinor, resp.Close = "HTTP/1.0", 0, true
	}
	return resp, nil
}

// copyHead copies a head as http.ReadResponse must see it. That ignores Transfer-Encoding in HTTP/1.0, and
// would return the chunks as the body. So the copy is of HTTP/1.1 then, and old is true. A first line that is
// no status line is copied alone, because more may not follow.
func (x *Exchange) copyHead(text *bytes.Buffer) (old bool, err error) {
	for sized, coded := false, false; ; {
		start := text.Len()
		for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
			var piece []byte
			piece, err = x.in.ReadSlice('\n')
			_, _ = text.Write(piece) // the error is always nil
		}
		line := text.Bytes()[start:]
		switch {
		case err != nil || start == 0 && !statusLines.Match(line):
			return old, err
		case start == 0:
			continue
		case len(bytes.TrimSuffix(line, []byte("\r\n"))) == 0 || len(line) == 1:
			old = coded && bytes.HasPrefix(text.Bytes(), []byte("HTTP/1.0 "))
			if old {
				text.Bytes()[len("HTTP/1.")] = '1'
			}
			x.faulty = x.faulty || old || sized && coded
			return old, nil
		}
		x.faulty = repairField(line) || x.faulty
		name, value, _ := bytes.Cut(line, []byte{':'})
		if bytes.EqualFold(name, []byte("Content-Length")) {
			sized = true
			uniteLengths(value)
		}
		coded = coded || bytes.EqualFold(name, []byte("Transfer-Encoding"))
	}
}

// repairField puts a blank in place of each bare CR (RFC 9112 §2.2), and moves blanks behind the name of a
// field to its value (§5.1). It reports whether there were any.
func repairField(line []byte) (repaired bool) {
	text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	for rest := text; len(rest) > 0; { // from where the last one was, because all 64 KiB may be such bytes
		i := bytes.IndexByte(rest, '\r')
		if i < 0 {
			break
		}
		rest[i], repaired, rest = ' ', true, rest[i+1:]
	}
	colon := bytes.IndexByte(text, ':')
	name := bytes.TrimRight(text[:max(colon, 0)], " \t")
	if colon <= len(name) || len(name) == 0 || text[0] == ' ' || text[0] == '\t' { // a folded line
		return repaired
	}
	text[len(name)], text[colon] = ':', ' '
	return true
}

// uniteLengths leaves one of a list of equal lengths (RFC 9110 §8.6).
func uniteLengths(value []byte) {
	value = bytes.TrimRight(value, "\r\n")
	first, rest, _ := bytes.Cut(value, []byte{','})
	want := bytes.TrimLeft(bytes.TrimSpace(first), "0")
	for length := range bytes.SplitSeq(rest, []byte{','}) {
		if !bytes.Equal(bytes.TrimLeft(bytes.TrimSpace(length), "0"), want) {
			return
		}
	}
	for i := len(first); i < len(value); i++ {
		value[i] = ' '
	}
}

// noEOF returns the error for an end within a message.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

var errChunk = errors.New("invalid chunk")

// chunks reads a body in chunks (RFC 9112 §7.1). The reader of net/http refuses blanks before an extension,
// and lines that end in a bare LF.
type chunks struct {
	in     *bufio.Reader
	left   uint64  // bytes that are missing in the chunk
	later  bool    // a chunk was read, and the end of its line follows
	bare   bool    // all lines end in a bare LF, as the first one
	end    [2]byte // what a chunk ends with
	excess int64   // bytes of lines beyond what the data allows
}

// Read fills p, unless it would wait for another chunk. It returns io.EOF behind the last one.
func (c *chunks) Read(p []byte) (n int, err error) {
	for err == nil {
		switch {
		case c.left == 0 && n > 0 && !c.lineArrived():
			return n, nil
		case c.left == 0:
			err = c.next()
		case n == len(p):
			return n, nil
		default:
			var m int
			m, err = c.in.Read(p[n:][:min(uint64(len(p)-n), c.left)])
			n, c.left, err = n+m, c.left-uint64(m), noEOF(err)
		}
	}
	return n, err
}

// lineArrived reports whether the next chunk can be begun without a wait.
func (c *chunks) lineArrived() bool {
	ahead, _ := c.in.Peek(c.in.Buffered())
	return len(ahead) > len(c.end) && bytes.IndexByte(ahead[len(c.end):], '\n') >= 0
}

// next begins a chunk. It returns io.EOF if it is the last one. Lines that are much longer than the
// data in all are refused, as by net/http. Lines that end in different ways are refused: a chunk that is
// shorter than its size would have the CR as data.
func (c *chunks) next() error {
	if c.later {
		newline := c.newline()
		end := c.end[:len(newline)]
		if _, err := io.ReadFull(c.in, end); err != nil {
			return noEOF(err)
		}
		if string(end) != newline {
			return errChunk
		}
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return noEOF(err)
	}
	if !c.later {
		c.bare = !bytes.HasSuffix(line, []byte("\r\n"))
	}
	text, ok := bytes.CutSuffix(line, []byte(c.newline()))
	if !ok || bytes.IndexByte(text, '\r') >= 0 {
		return errChunk
	}
	size, _, _ := bytes.Cut(text, []byte{';'})
	c.left, err = strconv.ParseUint(string(bytes.TrimRight(size, " \t")), 16, 64)
	if err != nil {
		return errChunk
	}
	c.later, c.excess = true, max(c.excess+int64(len(line))-16-2*int64(c.left), 0)
	switch {
	case c.excess > 16<<10:
		return errChunk
	case c.left == 0:
		return io.EOF
	}
	return nil
}

// newline returns what each line ends with.
func (c *chunks) newline() string {
	if c.bare {
		return "\n"
	}
	return "\r\n"
}
