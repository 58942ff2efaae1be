package origin

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// runStatus runs a STATUS step.
func runStatus(x *exchange, s *step) error {
	a := &s.answer
	if (a.chunkFault != "" || a.version != "") && x.wire.major() != 1 {
		return errUnsupported
	}
	status := a.statusFor(s.status, x.req.Header)
	if status == "101" {
		return runSwitch(x, s)
	}
	if err := x.pause(a.delay); err != nil {
		return err
	}
	if err := x.sendEarly(a); err != nil {
		return err
	}
	if status[0] == '1' {
		return x.sendInterimOnly(status, a)
	}
	return x.respond(status, a)
}

// sendEarly sends the informational responses that early asks for.
func (x *exchange) sendEarly(a *answer) error {
	if a.early == 0 {
		return nil
	}
	fields := []Field{{"Link", "</style.css>; rel=preload"}}
	if a.earlySize > 0 {
		fields = append(fields, Field{"X-Filler", filler(a.earlySize)})
	}
	for range a.earlyCount {
		if err := x.wire.interim(a.early, fields); err != nil {
			return err
		}
	}
	return nil
}

// sendInterimOnly sends a 1xx response and then breaks off, without a final response.
func (x *exchange) sendInterimOnly(status string, a *answer) error {
	code, err := strconv.Atoi(status)
	if err != nil {
		return errUnsupported
	}
	if err := x.wire.interim(code, a.header(time.Now())); err != nil {
		return err
	}
	return x.breakOff(a.how)
}

// respond sends head and body, with the faults that a asks for.
func (x *exchange) respond(status string, a *answer) error {
	c, err := x.content(status, a)
	if err != nil {
		return err
	}
	h := x.headFor(a, c)
	if err := x.wire.begin(h); err != nil {
		return err
	}
	if h.bodyless {
		return x.wire.end(nil)
	}
	if err := x.deliver(a, c); err != nil {
		return err
	}
	return x.finish(a, c)
}

func (x *exchange) headFor(a *answer, c *content) *head {
	code, _ := strconv.Atoi(c.status) // three digits
	h := &head{
		status:     c.status,
		fields:     append(a.header(time.Now()), c.fields...),
		length:     c.length,
		bodyless:   x.req.Method == http.MethodHead || forbidsBody(code) && !c.explicit,
		chunked:    a.chunked || a.trailers || a.chunkFault != "",
		chunkFault: a.chunkFault,
		closing:    a.closing || a.unread || a.noLength && !a.chunked,
		drip:       a.headDrip,
		version:    a.version,
	}
	switch {
	case a.length != unset:
		h.length = a.length
	case h.chunked, a.noLength, h.bodyless && forbidsBody(code):
		h.length = unset
	}
	if a.trailers {
		h.fields = append(h.fields, Field{"Trailer", trailerName})
	}
	return h
}

const trailerName = "X-Trailer"

// finish ends the body. A body that is shorter than its Content-Length can only break
// off.
func (x *exchange) finish(a *answer, c *content) error {
	if a.length > c.length {
		return x.breakOff(a.how)
	}
	if a.trailers {
		return x.wire.end([]Field{{trailerName, "end"}})
	}
	return x.wire.end(nil)
}

// deliver sends the body, as slowly and as far as a asks for.
func (x *exchange) deliver(a *answer, c *content) error {
	limit, act := c.length, func() error { return nil }
	if a.stall != unset {
		limit, act = min(limit, a.stall), x.hush
	}
	if a.cut != unset && (a.stall == unset || a.cut < a.stall) {
		limit, act = min(c.length, a.cut), func() error { return x.breakOff(a.how) }
	}
	if err := x.send(io.LimitReader(c.reader, limit), a); err != nil {
		return err
	}
	return act()
}

const sendBytes = 32 << 10

func (x *exchange) send(r io.Reader, a *answer) error {
	size := int64(sendBytes)
	if a.dripBytes > 0 {
		size = a.dripBytes
	}
	buf := make([]byte, size)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := x.wire.body(buf[:n]); err != nil {
				return err
			}
			if err := x.pause(a.dripEvery); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// answer has the parameters of a STATUS step. [Grammar] describes them.
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

	version         string
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

// fieldSpec is a field to send: a raw value, or a date relative to now.
type fieldSpec struct {
	name  string
	value string
	dated bool
	after time.Duration
}

// formatDate formats t in one of the three formats of RFC 9110 §5.6.7.
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

// header returns the fields that the parameters ask for, except those about the body
// and its framing.
func (a *answer) header(now time.Time) []Field {
	var fields []Field
	date := formatDate(now.Add(a.dateAfter), a.form)
	if a.date != nil {
		date = *a.date
	}
	if date != "none" {
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

func filler(n int64) string { return strings.Repeat("a", int(n)) }

// statusFor returns the status of the answer: that of the step, or the one that
// require or cond replace it with.
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

// notModified evaluates preconditions in the order of RFC 9110 §13.2.2.
func (a *answer) notModified(h http.Header) bool {
	if !a.cond {
		return false
	}
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

// matchesTag uses the weak comparison (RFC 9110 §8.8.3.2).
func matchesTag(tags, etag string) bool {
	for tag := range strings.SplitSeq(tags, ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}
