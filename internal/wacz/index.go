package wacz

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fetchd/internal/jsontext"
	"fetchd/warc"
)

// Index collects the entries of an index of WARC files. The caller closes it.
type Index struct {
	sorter  sorter
	in      *bufio.Reader
	request *capture // the last record, if it is a request
	waiting *capture // the last record, if its request may follow it

	seen     func(file string, rec *warc.Record) error // is called for each record; may be nil
	captured func(*capture) error                      // is called for each line; may be nil
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{sorter: sorter{memory: sortMemory}, in: bufio.NewReaderSize(nil, 32<<10)}
}

// Close removes temporary files.
func (x *Index) Close() { x.sorter.close() }

// timestamp is the format of the time in a line.
const timestamp = "20060102150405"

// entry is the third part of a line. Numbers are strings, as in the lines that other programs write.
type entry struct {
	URL      string `json:"url"`
	MIME     string `json:"mime"`
	Status   string `json:"status,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Length   string `json:"length"`
	Offset   string `json:"offset"`
	Filename string `json:"filename"`
	Method   string `json:"method,omitempty"`
}

// capture is a record whose request is known or may follow.
type capture struct {
	id, url, time string
	concurrent    []string
	method        string
	entry         entry
}

// Add reads a file and adds its records to the index. The file is called name there. If it cannot
// be read to its end, its whole records are added, and Add returns an error. shared is the number
// of records that share a gzip member with others: they cannot be read alone, and are not in the
// index.
func (x *Index) Add(name string, file io.Reader) (shared int, err error) {
	x.request = nil
	r := warc.NewReader(file, warc.ReaderOptions{})
	for {
		rec, err := r.Next()
		if err == nil {
			err = x.record(name, rec)
		}
		if err != nil {
			if flushed := x.flush(); flushed != nil {
				return shared, flushed
			}
			if err == io.EOF { //nolint:errorlint // Next returns it as it is
				return shared, nil
			}
			return shared, err
		}
		if rec.Shared {
			shared++
		}
	}
}

// record adds one record. It returns an error if the rest of the file cannot be read.
func (x *Index) record(name string, rec *warc.Record) error {
	var digest *warc.Digester
	block := rec.Block
	if rec.PayloadDigest == "" && rec.Type != warc.Revisit && rec.SegmentNumber == 0 && indexed(rec) {
		digest, _ = warc.NewDigester(warc.SHA1, hasMessage(rec)) // the algorithm is known
		block = io.TeeReader(block, digest)
	}
	x.in.Reset(block)
	var m message
	if hasMessage(rec) {
		m, _ = readMessage(x.in, rec.Type == warc.Request) // "warc check" reports the error
	}
	if _, err := io.Copy(io.Discard, x.in); err != nil {
		return err
	}
	if err := rec.Finish(); err != nil {
		return err
	}
	if x.seen != nil {
		if err := x.seen(name, rec); err != nil {
			return err
		}
	}
	c := &capture{id: rec.ID, url: rec.TargetURI, concurrent: rec.ConcurrentTo, method: m.method,
		time: rec.Date.UTC().Format(timestamp)}
	if rec.Type == warc.Request {
		return x.pair(c)
	}
	if !indexed(rec) || rec.Shared {
		return nil
	}
	c.entry = entry{URL: rec.TargetURI, MIME: mime(rec, m), Status: m.status, Digest: strings.TrimPrefix(string(rec.PayloadDigest), "sha1:"),
		Length: strconv.FormatInt(rec.Length, 10), Offset: strconv.FormatInt(rec.Offset, 10), Filename: name}
	if digest != nil {
		c.entry.Digest = strings.TrimPrefix(string(digest.Payload()), "sha1:")
	}
	return x.add(c)
}

// indexed reports whether the index has records of this kind: those with a payload that somebody
// could look for.
func indexed(rec *warc.Record) bool {
	switch {
	case rec.TargetURI == "", rec.Type == warc.Request, rec.Type == warc.Warcinfo:
		return false
	case rec.Type == warc.Metadata, rec.Type == warc.Resource:
		return rec.ContentType != warc.WarcFields
	}
	return true
}

// mime returns the media type without its parameters.
func mime(rec *warc.Record, m message) string {
	text := rec.ContentType
	switch {
	case rec.Type == warc.Revisit:
		return "warc/revisit"
	case rec.Type == warc.Response:
		text = m.contentType
	}
	text, _, _ = strings.Cut(text, ";")
	if text = strings.TrimSpace(text); text == "" {
		return "unk" // as pywb has it
	}
	return text
}

// pair takes a request. Its method belongs to the capture before it or to the one after it.
func (x *Index) pair(request *capture) error {
	if x.waiting != nil && request.of(x.waiting) {
		x.waiting.method = request.method
		request = nil
	}
	err := x.flush()
	x.request = request
	return err
}

// add adds a capture when its method is known.
func (x *Index) add(c *capture) error {
	err := x.flush()
	x.waiting = c
	if err == nil && x.request != nil && x.request.of(c) {
		c.method = x.request.method
		err = x.flush()
	}
	x.request = nil
	return err
}

// of reports whether a request led to a capture.
func (c *capture) of(other *capture) bool {
	return c.url == other.url && (slices.Contains(c.concurrent, other.id) || slices.Contains(other.concurrent, c.id))
}

// flush adds the line of the capture that waits for its request.
func (x *Index) flush() error {
	c := x.waiting
	x.waiting = nil
	if c == nil {
		return nil
	}
	url := c.url
	if c.method != "" && c.method != "GET" { // a look-up of the URL must not find it
		c.entry.Method = c.method
		separator := "?"
		if strings.Contains(url, "?") {
			separator = "&"
		}
		url += separator + "__wb_method=" + c.method
	}
	if x.captured != nil {
		if err := x.captured(c); err != nil {
			return err
		}
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c.entry); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return x.sorter.add(Key(url) + " " + c.time + " " + string(jsontext.Escape([]byte(strings.TrimSuffix(text.String(), "\n")))))
}

// Lines calls f for each line of the index in order. It is called once, after all files were added.
func (x *Index) Lines(f func(line string) error) error { return x.sorter.each(f) }
