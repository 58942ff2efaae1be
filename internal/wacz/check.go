package wacz

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"slices"

	"fetchd/warc"
)

// Problem is a fault in a file.
type Problem struct {
	File   string
	Offset int64     // of the record, or of the end of the last whole record; noOffset in a package
	ID     string    // empty if the record cannot be read
	Type   warc.Type // likewise
	Text   string
}

// noOffset is the offset of a problem that is not about a record.
const noOffset = -1

// String formats a problem without its file. Its values are not escaped.
func (p *Problem) String() string {
	text := p.Text
	if p.Type != "" || p.ID != "" {
		text = fmt.Sprintf("%s %s: %s", p.Type, p.ID, text)
	}
	if p.Offset != noOffset {
		text = fmt.Sprintf("offset %d: %s", p.Offset, text)
	}
	return text
}

// Check checks WARC files. The caller closes it.
type Check struct {
	// Report is called for each problem.
	Report func(Problem)
	// Stopped returns an error if the check of a package must end. It may be nil.
	Stopped func() error
	Counts

	seen func(*warc.Record) error // is called for each record; may be nil

	references references
	in         *bufio.Reader
	request    headRequest
}

// Counts is what a Check has counted.
type Counts struct {
	Files, Records, Problems int
	// Types counts the records of each type of the standard. Others counts the records of other types.
	Types  map[warc.Type]int
	Others int
	// NotChecked counts digests of an algorithm that is not known.
	NotChecked int
	// AsSent counts payload digests of which chunks are a part.
	AsSent int
	// Packages, Lines and Pages count packages, the lines of their indexes, and their pages.
	Packages, Lines, Pages int
	// Elsewhere counts references to records that are in none of the files, and may be in others.
	Elsewhere int
}

// headRequest is the last record, if it is a HEAD request.
type headRequest struct{ id, url string }

// Types are the types of the standard in the order in which they are printed.
var Types = []warc.Type{warc.Warcinfo, warc.Request, warc.Response, warc.Revisit, warc.Resource, warc.Metadata, warc.Conversion, warc.Continuation}

// NewCheck returns a Check that calls report for each problem.
func NewCheck(report func(Problem)) *Check {
	c := &Check{Report: report, in: bufio.NewReaderSize(nil, 32<<10), Counts: Counts{Types: map[warc.Type]int{}}}
	c.references.sorter.memory = sortMemory
	return c
}

// Close removes temporary files.
func (c *Check) Close() { c.references.sorter.close() }

func (c *Check) problem(p Problem) {
	c.Problems++
	c.Report(p)
}

// File checks a file. It returns only errors that are not about the file: those of temporary files,
// and context.Canceled if file returns it.
func (c *Check) File(name string, file io.Reader) error {
	c.Files++
	c.references.files = append(c.references.files, name)
	c.request = headRequest{}
	r := warc.NewReader(file, warc.ReaderOptions{Verify: true})
	for n := 0; ; n++ {
		rec, err := r.Next()
		if err == nil {
			err = c.record(name, rec)
		}
		if err == nil {
			continue
		}
		p, ok := Unreadable(err)
		switch {
		case ok:
		case err == io.EOF && n == 0: //nolint:errorlint // Next returns it as it is
			p.Text = "the file has no records"
		case err == io.EOF: //nolint:errorlint // likewise
			return nil
		default:
			return err
		}
		p.File = name
		c.problem(p)
		return nil
	}
}

// Unreadable returns a Problem if err means that a file cannot be read further.
func Unreadable(err error) (Problem, bool) {
	var e *warc.Error
	switch {
	case errors.Is(err, context.Canceled) || !errors.As(err, &e):
		return Problem{}, false
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Problem{Offset: e.Offset, Text: fmt.Sprintf("the file ends inside a record: truncate it to %d bytes", e.Offset)}, true
	}
	return Problem{Offset: e.Offset, Text: fmt.Sprintf("%v: the rest of the file is not read", e.Err)}, true
}

// record checks a record. It returns an error if the rest of the file cannot be read.
func (c *Check) record(name string, rec *warc.Record) error {
	at := Problem{File: name, Offset: rec.Offset, ID: rec.ID, Type: rec.Type}
	report := func(format string, args ...any) {
		at.Text = fmt.Sprintf(format, args...)
		c.problem(at)
	}
	faults, err := c.message(rec)
	if err == nil {
		err = rec.Finish()
	}
	if err != nil {
		return err
	}
	c.count(rec)
	for _, fault := range slices.Concat(rec.Problems, faults) {
		report("%v", fault)
	}
	if rec.Shared {
		report("shares its gzip member with other records, so it cannot be read alone")
	}
	if rec.BlockVerdict == warc.Differs {
		report("WARC-Block-Digest is %q, and the block has another digest", rec.BlockDigest)
	}
	switch rec.PayloadVerdict {
	case warc.MatchesAsSent:
		c.AsSent++
	case warc.Differs:
		report("WARC-Payload-Digest is %q, and the payload has another digest", rec.PayloadDigest)
	}
	if c.seen != nil {
		if err := c.seen(rec); err != nil {
			return err
		}
	}
	return c.references.add(len(c.references.files)-1, rec)
}

func (c *Check) count(rec *warc.Record) {
	c.Records++
	if slices.Contains(Types, rec.Type) {
		c.Types[rec.Type]++
	} else {
		c.Others++
	}
	for _, d := range []warc.Digest{rec.BlockDigest, rec.PayloadDigest} {
		if d != "" && d.Algorithm().Size() == 0 {
			c.NotChecked++
		}
	}
}

// message checks the HTTP message in a record. It returns an error if the file cannot be read.
func (c *Check) message(rec *warc.Record) (faults []error, err error) {
	head := c.request
	c.request = headRequest{}
	if !hasMessage(rec) {
		return nil, nil
	}
	c.in.Reset(rec.Block)
	m, fault := readMessage(c.in, rec.Type == warc.Request)
	if _, broken := errors.AsType[*warc.Error](fault); broken {
		return nil, fault
	}
	if fault != nil && rec.Truncated != "" { // the recorder gave up there
		return nil, nil
	}
	if fault != nil {
		return []error{fault}, nil
	}
	if m.method == "HEAD" {
		c.request = headRequest{rec.ID, rec.TargetURI}
	}
	answersHead := head.url == rec.TargetURI && head.id != "" && slices.Contains(rec.ConcurrentTo, head.id)
	if rec.Truncated != "" || rec.SegmentNumber != 0 || rec.Type == warc.Revisit || answersHead || bodyless(m.status) {
		return nil, nil
	}
	return c.payload(m)
}

// bodyless reports whether a response with that status has no body, whatever its head says.
func bodyless(status string) bool {
	return len(status) == 3 && status[0] == '1' || status == "204" || status == "304"
}

// payload compares the payload with what the head says about its length.
func (c *Check) payload(m message) (faults []error, err error) {
	if m.chunked {
		_, err = io.Copy(io.Discard, httputil.NewChunkedReader(c.in))
		if err == nil {
			err = skipTrailer(c.in)
		}
		if _, broken := errors.AsType[*warc.Error](err); broken {
			return nil, err
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("the chunks of the body are not whole: %w", err))
		}
		return faults, nil
	}
	n, err := io.Copy(io.Discard, c.in)
	if err == nil && m.length >= 0 && !m.unclear && n != m.length {
		faults = append(faults, fmt.Errorf("the HTTP head has Content-Length %d, and the payload has %d bytes", m.length, n))
	}
	return faults, err
}

// skipTrailer reads the trailer after the last chunk. Nothing may follow it.
func skipTrailer(in *bufio.Reader) error {
	for left := maxHead; ; {
		line, err := readLine(in, min(left, maxLine))
		if err != nil {
			return err
		}
		left -= len(line)
		if len(line) > 2 || len(line) == 2 && line[0] != '\r' {
			continue
		}
		n, err := io.Copy(io.Discard, in)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d bytes follow them", n)
		}
		return err
	}
}
