package classify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"syscall"
)

// Phase is where in an exchange something happened. Its numbers are those of
// fetchd.v1.Phase.
type Phase uint8

// The phases, in the order in which an exchange goes through them.
const (
	NoPhase         Phase = iota
	PhasePolicy           // Checks before anything was sent.
	PhaseResolve          // Name lookup.
	PhaseConnect          // TCP or proxy connection.
	PhaseTLS              // TLS handshake.
	PhaseRequest          // Sending the request.
	PhaseProcessing       // Waiting for the response head.
	PhaseTransfer         // Reading the body.
)

// String returns the name in lower_snake_case, and "" for [NoPhase].
func (p Phase) String() string {
	return name([]string{"", "policy", "resolve", "connect", "tls", "request", "processing", "transfer"}, int(p))
}

// Classified is an error that knows its class. [Error] believes it, wherever
// in the chain it stands.
type Classified interface {
	error
	// ErrorClass returns the class; never [NoClass].
	ErrorClass() Class
}

// Error returns the class of an error that ended an exchange in the given
// phase, and [NoClass] for nil. It is total, and looks at types and sentinels
// only, never at text. The first that holds:
//
//  1. an error that is [Classified];
//  2. [context.Canceled] is Cancelled;
//  3. in the lookup, or a *[net.DNSError]: DNSNotFound if it says so, else DNSFailure;
//  4. a time-out: that of its phase;
//  5. a certificate that does not verify, then any other failure of TLS;
//  6. a connection refused, or reset while it was made;
//  7. HTTP/2: a stream or connection ended by the peer is a reset, a breach of
//     the protocol is Protocol;
//  8. what no type tells: that of its phase (spec §3).
//
// A caller that sets time limits of its own asks its contexts for their cause
// first: HTTP/1 and HTTP/2 report a cancelled context with different errors.
func Error(phase Phase, err error) Class {
	if err == nil {
		return NoClass
	}
	if known, ok := errors.AsType[Classified](err); ok {
		return known.ErrorClass()
	}
	if errors.Is(err, context.Canceled) {
		return Cancelled
	}
	if c := resolveError(phase, err); c != NoClass {
		return c
	}
	if isTimeout(err) {
		return timeoutIn(phase)
	}
	if c := tlsError(phase, err); c != NoClass {
		return c
	}
	if c := connectError(phase, err); c != NoClass {
		return c
	}
	if c := http2Error(phase, err); c != NoClass {
		return c
	}
	return untyped(phase, err)
}

func resolveError(phase Phase, err error) Class {
	dns, ok := errors.AsType[*net.DNSError](err)
	switch {
	case ok && dns.IsNotFound:
		return DNSNotFound
	case ok || phase == PhaseResolve:
		return DNSFailure
	}
	return NoClass
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, context.DeadlineExceeded)
}

// timeoutIn is the class of a time-out in a phase (N1, N3, N7, N9).
func timeoutIn(phase Phase) Class {
	switch phase {
	case PhaseResolve:
		return DNSFailure
	case PhaseConnect, PhaseTLS:
		return ConnectTimeout
	case PhaseRequest:
		return WriteTimeout
	case PhaseProcessing:
		return ResponseTimeout
	case PhaseTransfer:
		return BodyTimeout
	}
	return Deadline
}

// tlsError tells N6 and N5. A TLS 1.3 server refuses a client's certificate
// only after the client has finished its handshake, so that an alert can also
// come in place of the response head.
func tlsError(phase Phase, err error) Class {
	if isCertificateError(err) {
		return TLSCertificate
	}
	if phase == PhaseTLS || phase <= PhaseProcessing && isTLSAlert(err) {
		return TLSHandshake
	}
	return NoClass
}

func isCertificateError(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return authority || host || invalid
}

// connectError tells N2, and the reset that strikes inside connect(2) where the
// peer resets what it has just accepted (N4).
func connectError(phase Phase, err error) Class {
	switch {
	case phase != PhaseConnect:
		return NoClass
	case errors.Is(err, syscall.ECONNREFUSED):
		return ConnectRefused
	case errors.Is(err, syscall.ECONNRESET):
		return ConnectionReset
	}
	return NoClass
}

// isTLSAlert tells an alert, ours or the peer's, by the operation that
// crypto/tls puts round it.
func isTLSAlert(err error) bool {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "remote error" || op.Op == "local error")
}

// http2Stream has the shape of net/http's own stream error, which answers
// errors.As for any struct of that shape (golang.org/issue/53896), so that
// golang.org/x/net/http2 is not needed to read it.
type http2Stream struct {
	StreamID uint32
	Code     http2Code
	Cause    error
}

// Error makes http2Stream an error, as errors.As wants it.
func (e http2Stream) Error() string { return "http2 stream error" }

// http2Code is an error code of RFC 9113 §7.
type http2Code uint32

// breach tells the codes with which an end says that the other broke the
// protocol, as against those with which it gives up a stream.
func (c http2Code) breach() bool {
	switch c {
	case 0x1, 0x3, 0x5, 0x6, 0x9, 0xc, 0xd: // PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED,
		// FRAME_SIZE_ERROR, COMPRESSION_ERROR, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED
		return true
	}
	return false
}

// http2Error tells the ends of an HTTP/2 stream before its head.
func http2Error(phase Phase, err error) Class {
	if phase > PhaseProcessing {
		return NoClass
	}
	if stream, ok := errors.AsType[http2Stream](err); ok {
		if stream.Code.breach() {
			return Protocol
		}
		return ConnectionReset
	}
	if isGoAway(err) {
		return ConnectionReset
	}
	return NoClass
}

// isGoAway tells net/http's error for a GOAWAY of the peer, whose type has no
// exported name, by its exported fields, wherever in the chain it stands.
func isGoAway(err error) bool {
	if err == nil {
		return false
	}
	if t := reflect.TypeOf(err); t.Kind() == reflect.Struct {
		_, last := t.FieldByName("LastStreamID")
		_, code := t.FieldByName("ErrCode")
		_, debug := t.FieldByName("DebugData")
		if last && code && debug {
			return true
		}
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(many.Unwrap(), isGoAway)
	}
	return isGoAway(errors.Unwrap(err))
}

// untyped is the class of an error that no type tells (spec §3).
func untyped(phase Phase, err error) Class {
	switch phase {
	case PhaseConnect:
		return ConnectFailure
	case PhaseRequest, PhaseProcessing:
		if isIO(err) {
			return ConnectionReset
		}
		return Protocol
	case PhaseTransfer:
		return BodyInterrupted
	}
	return Internal
}

// isIO tells errors of the connection from errors of what came over it.
func isIO(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return true
	}
	_, op := errors.AsType[*net.OpError](err)
	_, errno := errors.AsType[syscall.Errno](err)
	return op || errno
}
