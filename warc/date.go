package warc

import (
	"errors"
	"time"
)

// The levels of precision of W3CDTF, which WARC-Date may have. Parsing also accepts a fraction of
// the second.
var dateLayouts = []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly, "2006-01", "2006"}

const dateFormat = "2006-01-02T15:04:05.999999999Z"

var errDate = errors.New("the value is not a date")

func parseDate(s string) (time.Time, error) {
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, errDate
}

func checkDate(t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return errors.New("the year does not have four digits")
	}
	return nil
}
