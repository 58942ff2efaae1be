package origin

import (
	"strings"
)

func runReset(x *exchange, s *step) error { return x.breakAt(s, howRst) }

func runFin(x *exchange, s *step) error { return x.breakAt(s, howFin) }

// breakBody is the size of the body that is broken in the middle, past AFTER.
const breakBody = 1000

// breakAt ends the connection in the phase that the step names.
func (x *exchange) breakAt(s *step, how string) error {
	switch s.at {
	case atAcceptBody:
		x.readSome(s.after)
	case atInHead:
		if x.wire.major() != 1 {
			return errUnsupported
		}
		if err := x.wire.raw([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/pl")); err != nil {
			return err
		}
	case atInBody:
		return x.respond("200", brokenBody(s.after, how))
	}
	return x.breakOff(how)
}

// brokenBody is an answer that is cut after n bytes of a longer body.
func brokenBody(n int64, how string) *answer {
	return &answer{
		size: n + breakBody, cut: n, how: how,
		stall: unset, length: unset, codingCut: unset,
	}
}

// runCloseIdle answers as STATUS 200 and marks the connection.
func runCloseIdle(x *exchange, s *step) error {
	x.conn.closeNext.Store(true)
	s200 := *s
	s200.status = "200"
	return runStatus(x, &s200)
}

func runSilent(x *exchange, _ *step) error { return x.hush() }

func runGarbage(x *exchange, _ *step) error {
	// The bytes 0xFF and NUL are neither in HTTP/1.1 nor a frame in HTTP/2: its
	// length field says 16 MiB.
	if err := x.wire.raw([]byte(strings.Repeat("\xff\x00garbage", 16))); err != nil {
		return err
	}
	return x.breakOff(howFin)
}

func runHalfHead(x *exchange, _ *step) error {
	if err := x.rawHTTP1("HTTP/1.1 200 OK\r\nContent-Le"); err != nil {
		return err
	}
	return x.hush()
}

func runBadStatusLine(x *exchange, _ *step) error {
	if err := x.rawHTTP1("HTTP/1.1 OKAY\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return err
	}
	return x.breakOff(howFin)
}

func runBadHeader(x *exchange, _ *step) error {
	if err := x.rawHTTP1("HTTP/1.1 200 OK\r\nthis is no field\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return err
	}
	return x.breakOff(howFin)
}

func runSwitch(x *exchange, _ *step) error {
	if err := x.rawHTTP1("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: origin\r\n\r\n"); err != nil {
		return err
	}
	return x.hush()
}

// rawHTTP1 sends bytes that are only meant for HTTP/1.1.
func (x *exchange) rawHTTP1(s string) error {
	if x.wire.major() != 1 {
		return errUnsupported
	}
	return x.wire.raw([]byte(s))
}
