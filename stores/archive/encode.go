package archive

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"fetchd/warc"
)

const (
	outputSize = 128 << 10 // what an encoder holds before it writes
	gzipLevel  = 1         // others take more CPU than a fetch may
	storeBelow = 4 << 10   // bytes of a record
)

// encoder makes the records of one exchange. It is reused, because a compressor needs 1 MiB.
type encoder struct {
	archive  *Archive
	writer   *warc.Writer
	digester *warc.Digester
	in       *bufio.Reader
	buffer   []byte
	output   output
	records  []Record

	scanner scanner // these would each be allocated for every record
	scanned section
	block   block
}

func newEncoder(a *Archive) (*encoder, error) {
	w := &encoder{archive: a, in: bufio.NewReaderSize(nil, 4<<10), buffer: make([]byte, 32<<10)}
	var err error
	if w.writer, err = warc.NewWriter(&w.output, warc.WriterOptions{Plain: a.plain(), Level: gzipLevel, StoreBelow: storeBelow}); err != nil {
		return nil, err
	}
	w.digester, err = warc.NewDigester(warc.SHA1, true)
	return w, err
}

// commit writes the records of an exchange.
func (w *encoder) commit(c *Capture, e *Exchange) ([]Record, error) {
	a := w.archive
	w.output.reset(a)
	err := w.fill(c, e)
	if errors.Is(err, errOtherFile) {
		w.output.info = w.output.file.info
		err = w.fill(c, e)
	}
	f := w.output.file
	if err != nil {
		if f != nil {
			a.undo(f)
		}
		if failure, ok := errors.AsType[*Error](err); ok { // of take
			return nil, failure
		}
		return nil, a.fail("write record", err)
	}
	for i := range w.records {
		w.records[i].File = f.name
		w.records[i].Offset += f.size
	}
	f.size += w.output.written
	f.records += len(w.records)
	a.wrote(w.records)
	a.release(f)
	return w.records, nil
}

// fill writes the records to the output. It fails with errOtherFile, before a byte is in a file, if the
// records do not name the warcinfo record of that file.
func (w *encoder) fill(c *Capture, e *Exchange) error {
	w.output.bytes = w.output.bytes[:0]
	w.writer.Reset(&w.output, 0)
	w.records = nil
	if err := w.encode(c, e); err != nil {
		return err
	}
	return w.output.flush(true)
}

// encode encodes the request, and the response if there is one.
func (w *encoder) encode(c *Capture, e *Exchange) error {
	request, err := w.scan(&c.sent).request(c.sent.size(), e)
	if err != nil {
		return err
	}
	response, err := w.scan(&c.received).response(c.received.size(), e)
	if err != nil {
		return err
	}
	both := e.header()
	both.WarcinfoID = w.output.info
	ids := []string{warc.NewID(), warc.NewID()}
	answered := response.end > response.start
	h := both
	h.Type, h.ID, h.ContentType = warc.Request, ids[0], warc.HTTPRequest
	if answered {
		h.ConcurrentTo = ids[1:]
	}
	if !request.whole {
		h.Truncated = warc.TruncatedUnspecified
	}
	if err := w.record(&h, &c.sent, &request, e, w.archive.redactions(e.Redact)); err != nil || !answered {
		return err
	}
	h = both
	h.Type, h.ID, h.ContentType, h.ConcurrentTo = warc.Response, ids[1], warc.HTTPResponse, ids[:1]
	if !response.whole {
		h.Truncated = e.Truncated
		if h.Truncated == "" {
			h.Truncated = warc.TruncatedUnspecified
		}
	}
	if err := w.record(&h, &c.received, &response, e, w.archive.redactions(e.RedactResponse)); err != nil {
		return err
	}
	return w.metadata(&both, ids[1], e.Metadata)
}

// metadata writes a metadata record that is concurrent to a response, as that of Heritrix is.
func (w *encoder) metadata(both *warc.Header, response string, fields []warc.Field) error {
	if slices.Contains(w.archive.config.Redact, "Referer") {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f warc.Field) bool { return slices.Contains(MetadataURLs, f.Name) })
	}
	if len(fields) == 0 {
		return nil
	}
	block, err := warc.FormatFields(fields)
	if err != nil {
		return err
	}
	h := warc.Header{Type: warc.Metadata, Date: both.Date, TargetURI: both.TargetURI, WarcinfoID: both.WarcinfoID, ConcurrentTo: []string{response}, ContentType: warc.WarcFields}
	_, err = w.writer.WriteSeeker(&h, bytes.NewReader(block), warc.SHA1)
	return err
}

// redactions returns the fields that are redacted in a message: those of the settings, and more.
func (a *Archive) redactions(more []string) []string {
	if len(more) == 0 {
		return a.config.Redact
	}
	names := slices.Clone(a.config.Redact)
	for _, name := range more {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// scan returns a scanner of a spool. It uses the only bufio.Reader of w.
func (w *encoder) scan(s *spool) *scanner {
	w.scanned = section{spool: s, end: s.size()}
	w.in.Reset(&w.scanned)
	w.scanner = scanner{in: w.in, first: w.scanner.first[:0]}
	return &w.scanner
}

// record writes a record of what m describes.
func (w *encoder) record(h *warc.Header, s *spool, m *message, e *Exchange, names []string) error {
	w.block = block{rest: section{spool: s, at: m.start, end: m.end}}
	b := &w.block
	if len(names) > 0 {
		var found []string
		if err := b.readHead(m.body - m.start); err != nil {
			return err
		}
		if b.head, found = redact(b.head, names); found != nil {
			h.Extra = append(h.Extra, warc.Field{Name: redactedField, Value: strings.Join(found, ", ")})
		}
	}
	if !m.complete {
		h.ContentType = "application/octet-stream"
	}
	if err := w.digest(b); err != nil {
		return err
	}
	h.BlockDigest = w.digester.Block()
	if m.complete && (h.Type == warc.Response && !e.Bodyless || m.end > m.body) {
		h.PayloadDigest = w.digester.Payload()
	}
	if h.Type == warc.Response && e.revisit(h, m) && m.end > m.body {
		b.rest.end = m.body
		if err := w.digest(b); err != nil {
			return err
		}
		h.BlockDigest = w.digester.Block()
	}
	place, err := w.writer.WriteRecord(h, b, b.length())
	if err != nil {
		return err
	}
	w.records = append(w.records, Record{Type: h.Type, ID: h.ID, Offset: place.Offset, Length: place.Length, Date: h.Date, PayloadDigest: h.PayloadDigest})
	return nil
}

// digest computes the digests of a block. The block can then be read again.
func (w *encoder) digest(b *block) error {
	before := *b
	w.digester.Reset()
	_, err := io.CopyBuffer(w.digester, b, w.buffer)
	*b = before
	return err
}

// block is a head, if it was redacted, and the rest of a message.
type block struct {
	head []byte
	rest section
}

func (b *block) length() int64 { return int64(len(b.head)) + b.rest.end - b.rest.at }

// readHead reads the first n bytes.
func (b *block) readHead(n int64) error {
	b.head = make([]byte, n)
	_, err := io.ReadFull(&b.rest, b.head)
	return err
}

// Read implements io.Reader.
func (b *block) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	return b.rest.Read(p)
}

// output collects records, and writes them to a file when it is full. A record that fits is written
// at once.
type output struct {
	archive *Archive
	bytes   []byte
	file    *file  // nil before the first write
	info    string // the identifier of the warcinfo record that the records name
	written int64  // behind file.size
}

func (o *output) reset(a *Archive) { *o = output{archive: a, bytes: o.bytes[:0], info: a.nextInfo()} }

var errOtherFile = errors.New("the records are for another file")

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		if len(o.bytes) == outputSize {
			if err := o.flush(false); err != nil {
				return n, err
			}
		}
		m := min(len(p)-n, outputSize-len(o.bytes))
		o.bytes = append(o.bytes, p[n:n+m]...)
		n += m
	}
	return len(p), nil
}

// WriteByte implements io.ByteWriter, so that a warc.Writer needs no buffer.
func (o *output) WriteByte(c byte) error {
	_, err := o.Write([]byte{c})
	return err
}

// flush writes what is held. last reports whether nothing follows: the file is then used for a
// moment only.
func (o *output) flush(last bool) error {
	if o.file == nil {
		f, err := o.archive.take(last)
		if err != nil {
			return err
		}
		o.file = f
		if f.info != o.info {
			return errOtherFile
		}
	}
	n, err := o.file.file.WriteAt(o.bytes, o.file.size+o.written)
	o.written += int64(n)
	o.bytes = o.bytes[:0]
	return err
}
