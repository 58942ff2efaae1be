package warc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// ReaderOptions are the options of a Reader.
type ReaderOptions struct {
	// Limits bound the heads. Limits that are zero have their default.
	Limits Limits
	// Verify computes the digests of each record and compares them with its fields.
	Verify bool
	// Offset is the place in the file of the first byte that the Reader reads. It is added to each
	// offset.
	Offset int64
}

// Reader reads records. It may not be used by two goroutines at once.
type Reader struct {
	options ReaderOptions
	source  source
	file    *bufio.Reader
	content content       // of the gzip member; its gz is nil if the file is not compressed
	in      *bufio.Reader // what records are read from: file, or the decompressed bytes
	parser  headParser

	current *Record // nil between records
	begun   bool    // the file has a first record
	start   int64   // where the record or the open gzip member starts
	member  bool    // a gzip member is open
	whole   int64
	err     error
}

// NewReader returns a Reader from src. It reads ahead up to 64 KiB.
func NewReader(src io.Reader, o ReaderOptions) *Reader {
	r := &Reader{options: o, source: source{from: src, n: o.Offset}, whole: o.Offset}
	r.file = bufio.NewReaderSize(&r.source, 64<<10)
	r.in = r.file
	r.parser.limits = o.Limits.withDefaults()
	return r
}

// Whole returns the offset of the end of the last whole record.
func (r *Reader) Whole() int64 { return r.whole }

// Compressed reports whether the file is compressed. It is known after the first call of Next.
func (r *Reader) Compressed() bool { return r.content.gz != nil }

// Next finishes the current record and returns the next one. It returns io.EOF at the end of the
// file, and any other error as an *Error.
//
// A file that ends inside a record's block has a record that Next returns. The error is then
// returned by its Block, its Finish and the next call of Next.
func (r *Reader) Next() (*Record, error) {
	if r.current != nil {
		if err := r.current.Finish(); err != nil {
			return nil, err
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	shared := r.member
	if !shared {
		first, err := r.file.Peek(1)
		if errors.Is(err, io.EOF) {
			r.err = io.EOF
			return nil, r.err
		}
		if err == nil {
			err = r.open(first[0])
		}
		if err != nil {
			return nil, r.fail(err)
		}
	}
	rec, err := r.readHead()
	if err != nil {
		return nil, r.fail(err)
	}
	rec.Offset, rec.Shared = r.start, shared
	r.current = rec
	return rec, nil
}

// open starts a record of a plain file, or a gzip member. The first byte of the file says which.
func (r *Reader) open(first byte) error {
	r.start = r.position()
	if !r.begun && first == 0x1f {
		r.content.gz = new(gzip.Reader)
		r.in = bufio.NewReaderSize(nil, 16<<10)
	}
	r.begun = true
	if r.content.gz == nil {
		return nil
	}
	r.content.ended = false
	if err := r.content.gz.Reset(r.file); err != nil {
		return err
	}
	r.content.gz.Multistream(false)
	r.in.Reset(&r.content)
	r.member = true
	return nil
}

// position returns the offset of the next byte of the file. The decompressor reads from file byte
// by byte, so it never reads beyond the end of a member.
func (r *Reader) position() int64 { return r.source.n - int64(r.file.Buffered()) }

// magic is how each record starts.
const magic = "WARC/"

// readHead reads the head of a record.
func (r *Reader) readHead() (*Record, error) {
	p := &r.parser
	p.reset()
	p.in = r.in
	// A file that ends in zeros after a crash has no line. It is damaged, not truncated.
	if start, _ := r.in.Peek(len(magic)); !strings.HasPrefix(magic, string(start)) {
		return nil, fmt.Errorf("%w: it starts with %q", ErrFormat, start)
	}
	if err := p.readLine(); err != nil {
		return nil, err
	}
	version, ok := strings.CutPrefix(string(p.line), magic)
	if !ok || version != "1.0" && version != "1.1" {
		return nil, fmt.Errorf("%w: the first line is %.20q, not WARC/1.0 or WARC/1.1", ErrFormat, p.line)
	}
	if err := p.parse(); err != nil {
		return nil, err
	}
	rec := &Record{Version: version, Fields: p.fields, Problems: p.problems, reader: r}
	if err := rec.understand(); err != nil {
		return nil, err
	}
	rec.block = &block{record: rec, left: rec.ContentLength}
	rec.Block = rec.block
	if r.options.Verify {
		rec.block.sums = newSums(&rec.Header)
	}
	return rec, nil
}

// understand fills the Header from the fields.
func (rec *Record) understand() error {
	seen := map[string]bool{}
	for _, f := range rec.Fields {
		name, defined := canonical(f.Name)
		if !defined {
			rec.Extra = append(rec.Extra, f)
			continue
		}
		if seen[name] && !mayRepeat(name) {
			if name == nameContentLength {
				return fmt.Errorf("%w: the record has more than one %s", ErrFormat, name)
			}
			rec.Problems = append(rec.Problems, fmt.Errorf("%s is repeated", name))
			continue
		}
		seen[name] = true
		if err := setters[name](&rec.Header, f.Value); err != nil {
			rec.Problems = append(rec.Problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	n, err := parseLength(Get(rec.Fields, nameContentLength))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFormat, nameContentLength, err)
	}
	rec.ContentLength = n
	rec.Problems = append(rec.Problems, rec.check()...)
	return nil
}

// Finish reads what is left of the record. It returns nil if the record is whole in the file.
func (rec *Record) Finish() error {
	r := rec.reader
	if r.current != rec {
		return nil // it was finished before
	}
	if r.err != nil {
		return r.err
	}
	if _, err := io.Copy(io.Discard, rec.block); err != nil {
		return err
	}
	if err := r.endRecord(rec); err != nil {
		return r.fail(err)
	}
	if rec.block.sums != nil {
		rec.BlockVerdict, rec.PayloadVerdict = rec.block.sums.verdicts(&rec.Header)
	}
	r.current = nil
	return nil
}

// endRecord reads the end of a record, and the end of its gzip member if that follows.
func (r *Reader) endRecord(rec *Record) error {
	var end [len(recordEnd)]byte
	if _, err := io.ReadFull(r.in, end[:]); err != nil {
		return err
	}
	if string(end[:]) != recordEnd {
		return fmt.Errorf("%w: %d bytes of block are not followed by two empty lines", ErrFormat, rec.ContentLength)
	}
	if r.member {
		switch _, err := r.in.Peek(1); {
		case errors.Is(err, io.EOF):
			r.member = false
		case err != nil:
			return err
		default:
			rec.Shared = true
			return nil
		}
	}
	r.whole = r.position()
	if !rec.Shared {
		rec.Length = r.whole - r.start
	}
	return nil
}

// fail records err as the error of the reader.
func (r *Reader) fail(err error) error {
	switch {
	case r.source.err != nil:
		err = r.source.err
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
	case r.content.ended:
		err = fmt.Errorf("%w: the gzip member ends inside a record", ErrFormat)
	default:
		err = io.ErrUnexpectedEOF
	}
	r.err = &Error{Offset: r.whole, Err: err}
	return r.err
}

// content is the decompressed content of a gzip member.
type content struct {
	gz    *gzip.Reader
	ended bool // the whole member was read, and its checksum is correct
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.gz.Read(p)
	if errors.Is(err, io.EOF) { // a truncated member gives io.ErrUnexpectedEOF
		c.ended = true
	}
	return n, err
}

// source counts the bytes that were read and keeps the error.
type source struct {
	from io.Reader
	n    int64
	err  error // other than io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
