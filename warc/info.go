package warc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// FormatFields returns fields as an application/warc-fields block, which warcinfo and metadata
// records have. Names that are usual in a warcinfo record are "software", "operator", "hostname",
// "ip", "robots", "http-header-user-agent", "http-header-from", "format" and "conformsTo".
func FormatFields(fields []Field) ([]byte, error) {
	var e encoder
	for _, f := range fields {
		e.field(f)
	}
	if e.err != nil {
		return nil, fmt.Errorf("warc: %w", e.err)
	}
	return e.b, nil
}

// ParseFields reads an application/warc-fields block until its end or an empty line. Limits that
// are zero have their default.
func ParseFields(block io.Reader, l Limits) ([]Field, error) {
	p := headParser{in: bufio.NewReader(block), limits: l.withDefaults(), lastLine: true}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("warc: %w", err)
	}
	if len(p.problems) > 0 {
		return p.fields, fmt.Errorf("warc: %w", errors.Join(p.problems...))
	}
	return p.fields, nil
}

// WriteInfo writes a warcinfo record with these fields. It sets the type, the content type and the
// block digest; set the date and, if the file has a name, the name in h.
func (w *Writer) WriteInfo(h *Header, fields []Field) (Place, error) {
	block, err := FormatFields(fields)
	if err != nil {
		return Place{}, err
	}
	info := *h
	info.Type, info.ContentType = Warcinfo, WarcFields
	d := SHA1.hash()
	d.Write(block)
	info.BlockDigest = NewDigest(SHA1, d.Sum(nil))
	return w.WriteRecord(&info, bytes.NewReader(block), int64(len(block)))
}
