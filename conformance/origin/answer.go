package origin

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer is the parameters of a STATUS step.
type answer struct {
	size, offset int64
	text         *string
	charset      string
	bomb         int64
	echo         bool
	coding       string
	codingCut    int64
	codingLie    string

	contentType  *string
	etag         string
	lastModified string
	cond         bool
	ranges       bool
	require      string
	fields       []fieldSpec
	form         string
	date         *string
	dateAfter    time.Duration
	headSize     int64
	early        int
	earlyCount   int64
	earlySize    int64

	delay, headDrip time.Duration
	dripBytes       int64
	dripEvery       time.Duration
	stall, cut      int64
	how             string

	chunked, noLength bool
	length            int64
	chunkFault        string
	trailers          bool
	closing           bool
	unread            bool
}

// fieldSpec is a field to send: a raw value, or a date so far from now.
type fieldSpec struct {
	name  string
	value string
	dated bool
	after time.Duration
}

func dateOffset(s *step, value string) error {
	after, err := seconds(value)
	s.answer.dateAfter = after
	return err
}

func early(s *step, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 100 || n > 199 || n == http.StatusSwitchingProtocols {
		return errGrammar
	}
	s.answer.early = n
	return nil
}

// formatDate writes t in one of the three forms of RFC 9110 §5.6.7.
func formatDate(t time.Time, form string) string {
	t = t.UTC()
	switch form {
	case "rfc850":
		return t.Format("Monday, 02-Jan-06 15:04:05 GMT")
	case "asctime":
		return t.Format(time.ANSIC)
	}
	return t.Format(http.TimeFormat)
}

// header renders the fields that the parameters ask for, body and framing
// apart.
func (a *answer) header(now time.Time) []Field {
	var fields []Field
	if date := a.dateValue(now); date != "none" {
		fields = append(fields, Field{"Date", date})
	}
	if a.etag != "" {
		fields = append(fields, Field{"ETag", a.etag})
	}
	if a.lastModified != "" {
		fields = append(fields, Field{"Last-Modified", a.lastModified})
	}
	for _, f := range a.fields {
		value := f.value
		if f.dated {
			value = formatDate(now.Add(f.after), a.form)
		}
		fields = append(fields, Field{f.name, value})
	}
	if a.headSize > 0 {
		fields = append(fields, Field{"X-Filler", filler(a.headSize)})
	}
	return fields
}

func (a *answer) dateValue(now time.Time) string {
	if a.date != nil {
		return *a.date
	}
	return formatDate(now.Add(a.dateAfter), a.form)
}

func filler(n int64) string { return strings.Repeat("a", int(n)) }

// statusFor returns the status of the answer to this request: the step's own,
// or what require and cond make of it.
func (a *answer) statusFor(own string, h http.Header) string {
	switch {
	case a.require != "" && !hasField(h, a.require):
		return "401"
	case a.notModified(h):
		return "304"
	}
	return own
}

func hasField(h http.Header, want string) bool {
	name, value, exact := strings.Cut(want, "=")
	if exact {
		return h.Get(name) == value
	}
	return len(h.Values(name)) > 0
}

func (a *answer) notModified(h http.Header) bool { return a.cond && a.unchanged(h) }

// unchanged evaluates the preconditions in the order of RFC 9110 §13.2.2.
func (a *answer) unchanged(h http.Header) bool {
	if tags := h.Get("If-None-Match"); tags != "" {
		return tags == "*" || a.etag != "" && matchesTag(tags, a.etag)
	}
	since, err := http.ParseTime(h.Get("If-Modified-Since"))
	if err != nil {
		return false
	}
	modified, err := http.ParseTime(a.lastModified)
	return err == nil && !modified.After(since)
}

// matchesTag compares weakly (RFC 9110 §8.8.3.2).
func matchesTag(tags, etag string) bool {
	for tag := range strings.SplitSeq(tags, ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}
