package wacz

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fetchd/warc"
)

// references compares what records say about other records with those records. It sorts both by the
// identifier of the record that is meant, so that any number of records needs little memory.
type references struct {
	files  []string
	sorter sorter
}

// The kinds of lines in the order in which they are sorted. A record precedes the references to it.
const (
	kindRecord     = "1"
	kindConcurrent = "2"
	kindRefers     = "3"
	kindWarcinfo   = "4"
)

// maxPrintedID is how much of an identifier is printed with a reference that is wrong.
const maxPrintedID = 256

// reference is a record, or what a record says about another one.
type reference struct {
	File   int         `json:"f"`
	Offset int64       `json:"o"`
	ID     string      `json:"i"` // of the record that refers
	Type   warc.Type   `json:"t"`
	URL    string      `json:"u,omitempty"`
	Date   time.Time   `json:"d,omitzero"`
	Digest warc.Digest `json:"p,omitempty"`
}

// add adds a record and its references.
func (s *references) add(file int, rec *warc.Record) error {
	own := reference{File: file, Offset: rec.Offset, ID: rec.ID, Type: rec.Type, URL: rec.TargetURI, Date: rec.Date, Digest: rec.PayloadDigest}
	if rec.ID == "" {
		return nil // it was reported
	}
	if err := s.line(rec.ID, kindRecord, own); err != nil {
		return err
	}
	// A head may have many references, so a line of one has no long values.
	brief := own
	brief.ID, brief.URL, brief.Digest = own.ID[:min(len(own.ID), maxPrintedID)], "", ""
	for _, id := range rec.ConcurrentTo {
		if err := s.line(id, kindConcurrent, brief); err != nil {
			return err
		}
	}
	if rec.RefersTo != "" {
		about := own
		about.URL, about.Date = rec.RefersToTargetURI, rec.RefersToDate
		if !strings.HasSuffix(rec.Profile, "/identical-payload-digest") { // of either version
			about.Digest = ""
		}
		if err := s.line(rec.RefersTo, kindRefers, about); err != nil {
			return err
		}
	}
	if rec.WarcinfoID != "" {
		return s.line(rec.WarcinfoID, kindWarcinfo, brief)
	}
	return nil
}

func (s *references) line(id, kind string, r reference) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	return s.sorter.add(strconv.Quote(id) + "\t" + kind + string(text))
}

// References reports identifiers that occur twice, and references that are wrong. It is called
// once, after all files were checked.
func (c *Check) References() error {
	last := ""         // the identifier of the last line, quoted
	var rec *reference // the record with that identifier
	return c.references.sorter.each(func(line string) error {
		id, text, _ := strings.Cut(line, "\t")
		var r reference
		if err := json.Unmarshal([]byte(text[1:]), &r); err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		if id != last {
			last, rec = id, nil
		}
		fault := ""
		switch kind := text[:1]; {
		case kind == kindRecord && rec == nil:
			rec = &r
		case kind == kindRecord:
			fault = fmt.Sprintf("has the WARC-Record-ID of the record at offset %d of %q", rec.Offset, c.references.files[rec.File])
		case rec != nil:
			fault = r.compare(rec, kind, id)
		default: // recorders start a new file between a request and its response, too
			c.Elsewhere++
		}
		if fault != "" {
			c.problem(Problem{File: c.references.files[r.File], Offset: r.Offset, ID: r.ID, Type: r.Type, Text: fault})
		}
		return nil
	})
}

// compare returns what is wrong in a reference to rec, whose quoted identifier is id.
func (r *reference) compare(rec *reference, kind, id string) string {
	ofCapture := func(t warc.Type) bool { return t == warc.Request || t == warc.Response || t == warc.Revisit }
	switch {
	case kind == kindWarcinfo && rec.Type != warc.Warcinfo:
		return fmt.Sprintf("has %s as its WARC-Warcinfo-ID, which is a %q record", id, rec.Type)
	case kind == kindConcurrent && r.File == rec.File && r.Offset == rec.Offset && r.Type == rec.Type:
		return "is concurrent to itself"
	case kind == kindConcurrent && ofCapture(r.Type) && ofCapture(rec.Type) && !sameTime(r.Date, rec.Date):
		return fmt.Sprintf("is concurrent to %s and has another WARC-Date", id)
	case kind != kindRefers:
		return ""
	case r.URL != "" && r.URL != rec.URL:
		return fmt.Sprintf("refers to %s with WARC-Refers-To-Target-URI %q, and that record has WARC-Target-URI %q", id, r.URL, rec.URL)
	case !sameTime(r.Date, rec.Date):
		return fmt.Sprintf("refers to %s with WARC-Refers-To-Date %s, and that record has WARC-Date %s", id, r.Date.Format(time.RFC3339Nano), rec.Date.Format(time.RFC3339Nano))
	case r.Digest != "" && rec.Digest != "" && !r.Digest.Equal(rec.Digest):
		return fmt.Sprintf("refers to %s, which has the payload digest %q and not %q", id, rec.Digest, r.Digest)
	}
	return ""
}

// sameTime reports whether two dates are equal, as far as both are given: WARC/1.0 has only seconds.
// A date that is missing was reported.
func sameTime(a, b time.Time) bool {
	return a.IsZero() || b.IsZero() || a.Equal(b) || a.Equal(b.Truncate(time.Second)) || b.Equal(a.Truncate(time.Second))
}
