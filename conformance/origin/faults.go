package origin

import "strings"

func runReset(x *exchange, s *step) error { return x.breakAt(s, howRst) }

func runFin(x *exchange, s *step) error { return x.breakAt(s, howFin) }

// breakAt ends the connection in the phase that the step names.
func (x *exchange) breakAt(s *step, how string) error {
	switch s.at {
	case atAcceptBody:
		x.readSome(s.after)
	case atInHead:
		if err := x.rawHTTP1("HTTP/1.1 200 OK\r\nContent-Type: text/pl"); err != nil {
			return err
		}
	case atInBody:
		return x.respond("200", brokenBody(s.after, how))
	}
	return x.breakOff(how)
}

// brokenBody returns an answer whose body breaks off after n bytes of n + 1000.
func brokenBody(n int64, how string) *answer {
	a := newStep().answer
	a.size, a.cut, a.how = n+1000, n, how
	return &a
}

// runCloseIdle answers with 200 and marks the connection: its next request ends it.
func runCloseIdle(x *exchange, s *step) error {
	x.conn.closeNext.Store(true)
	ok := *s
	ok.status = "200"
	return runStatus(x, &ok)
}

func runSilent(x *exchange, _ *step) error { return x.hush() }

func runGarbage(x *exchange, _ *step) error {
	// 0xFF and NUL are invalid in HTTP/1.1. As an HTTP/2 frame header these
	// bytes announce a length of 16 MiB, which exceeds any limit.
	if err := x.wire.raw([]byte(strings.Repeat("\xff\x00garbage", 16))); err != nil {
		return err
	}
	return x.breakOff(howFin)
}

func runSwitch(x *exchange, s *step) error {
	return rawThenSilence("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: origin\r\n\r\n")(x, s)
}

// rawThenSilence returns a step that sends text in HTTP/1.1 and then nothing more.
func rawThenSilence(text string) func(*exchange, *step) error {
	return func(x *exchange, _ *step) error {
		if err := x.rawHTTP1(text); err != nil {
			return err
		}
		return x.hush()
	}
}

// rawThenFin returns a step that sends text in HTTP/1.1 and closes the connection.
func rawThenFin(text string) func(*exchange, *step) error {
	return func(x *exchange, _ *step) error {
		if err := x.rawHTTP1(text); err != nil {
			return err
		}
		return x.breakOff(howFin)
	}
}

// rawHTTP1 sends bytes that make sense in HTTP/1.1 only.
func (x *exchange) rawHTTP1(s string) error {
	if x.wire.major() != 1 {
		return errUnsupported
	}
	return x.wire.raw([]byte(s))
}
