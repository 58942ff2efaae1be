package wacz

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fetchd/warc"
)

// originals finds revisits whose original is in no file. Replay programs look for the URL and the date of the
// original; a revisit without these names its record.
type originals struct{ sorter sorter }

// The kinds of lines in the order in which they are sorted.
const (
	kindOriginal = "1"
	kindRevisit  = "2"
)

// add adds a record.
func (o *originals) add(file string, rec *warc.Record) error {
	switch rec.Type {
	case warc.Response, warc.Resource:
		if err := o.sorter.add(strconv.Quote(rec.ID) + "\t" + kindOriginal); err != nil {
			return err
		}
		return o.sorter.add(strconv.Quote(capturedAt(rec.TargetURI, rec.Date)) + "\t" + kindOriginal)
	case warc.Revisit:
		key := rec.RefersTo
		if rec.RefersToTargetURI != "" && !rec.RefersToDate.IsZero() {
			key = capturedAt(rec.RefersToTargetURI, rec.RefersToDate)
		}
		text, err := json.Marshal(reference{Offset: rec.Offset, ID: rec.ID[:min(len(rec.ID), maxPrintedID)], Type: rec.Type, URL: rec.TargetURI})
		if err != nil {
			return fmt.Errorf("revisit: %w", err)
		}
		return o.sorter.add(strconv.Quote(key) + "\t" + kindRevisit + strconv.Quote(file) + "\t" + string(text))
	}
	return nil
}

func capturedAt(url string, t time.Time) string { return url + " " + t.UTC().Format(timestamp) }

// missing calls f for each revisit whose original is missing.
func (o *originals) missing(f func(file string, revisit reference) error) error {
	last := ""
	return o.sorter.each(func(line string) error {
		key, rest, _ := strings.Cut(line, "\t")
		if rest == kindOriginal {
			last = key
			return nil
		}
		if key == last {
			return nil
		}
		quoted, text, _ := strings.Cut(rest[len(kindRevisit):], "\t")
		file, err := strconv.Unquote(quoted)
		if err != nil {
			return fmt.Errorf("revisit: %w", err)
		}
		var r reference
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return fmt.Errorf("revisit: %w", err)
		}
		return f(file, r)
	})
}
