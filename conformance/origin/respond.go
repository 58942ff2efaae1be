package origin

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// runStatus carries out a STATUS step.
func runStatus(x *exchange, s *step) error {
	a := &s.answer
	if err := a.check(x.wire.major()); err != nil {
		return err
	}
	status := a.statusFor(s.status, x.req.Header)
	if status == "101" {
		return runSwitch(x, s)
	}
	if err := x.pause(a.delay); err != nil {
		return err
	}
	if err := x.sayEarly(a); err != nil {
		return err
	}
	if status[0] == '1' {
		return x.sayOnlyInterim(status, a)
	}
	return x.respond(status, a)
}

// check refuses what only HTTP/1.1 has.
func (a *answer) check(major int) error {
	if major != 1 && a.chunkFault != "" {
		return errUnsupported
	}
	return nil
}

func (x *exchange) sayEarly(a *answer) error {
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

// sayOnlyInterim sends a 1xx as if it were final, and ends.
func (x *exchange) sayOnlyInterim(status string, a *answer) error {
	code, err := strconv.Atoi(status)
	if err != nil {
		return errUnsupported
	}
	if err := x.wire.interim(code, a.header(time.Now())); err != nil {
		return err
	}
	return x.breakOff(a.how)
}

// respond sends head and body, with the faults of a.
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

// finish ends the body. One that is shorter than its Content-Length cannot end
// other than by breaking off.
func (x *exchange) finish(a *answer, c *content) error {
	if a.length > c.length {
		return x.breakOff(a.how)
	}
	if a.trailers {
		return x.wire.end([]Field{{trailerName, "end"}})
	}
	return x.wire.end(nil)
}

// deliver sends the body as slowly and as far as a says.
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
		if err != nil {
			return endOfInput(err)
		}
	}
}

// endOfInput tells the end of a body from an error in making it.
func endOfInput(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
