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

// Phase is the step of an exchange in which an error occurred. Its numbers are
// those of fetchd.v1.Phase.
type Phase uint8

// The phases, in the order in which they occur in an exchange.
const (
	NoPhase         Phase = iota
	PhasePolicy           // Checks before anything is sent.
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

// Classified is an error that knows its class. [Error] returns that class
// wherever the error is in the chain.
type Classified interface {
	error
	// ErrorClass returns the class; never [NoClass].
	ErrorClass() Class
}

// Error returns the class of an error that ended an exchange in the given
// phase, and [NoClass] for nil. It accepts any error. It uses types and
// sentinel values, never the text. The first of these that applies decides:
//
//  1. A [Classified] error has its own class.
//  2. EMFILE and ENFILE are Internal: this process or machine has no file descriptor left,
//     which says nothing about the origin.
//  3. [context.Canceled] is Cancelled.
//  4. An error of the lookup, or a *[net.DNSError], is DNSNotFound if IsNotFound
//     is set and DNSFailure otherwise.
//  5. A timeout has the timeout class of its phase.
//  6. A certificate that does not verify is TLSCertificate, and any other TLS
//     failure TLSHandshake.
//  7. While connecting, a refused connection is ConnectRefused, and a reset is
//     ConnectionReset.
//  8. In HTTP/2, a protocol error is Protocol. Any other stream error or GOAWAY
//     is ConnectionReset.
//  9. Any other error has the default class of its phase (spec §3).
//
// A caller that sets its own time limits should check [context.Cause] first:
// HTTP/1 and HTTP/2 report a cancelled context with different errors.
func Error(phase Phase, err error) Class {
	if err == nil {
		return NoClass
	}
	if known, ok := errors.AsType[Classified](err); ok {
		return known.ErrorClass()
	}
	if NoDescriptor(err) {
		return Internal
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

// NoDescriptor reports whether an error means that this process or machine may open no more files and
// sockets (P6).
func NoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
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

// timeoutIn returns the class of a timeout in a phase (N1, N3, N7, N9).
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

// tlsError applies N6 and N5. A TLS 1.3 server rejects a client certificate only
// after the client has finished its handshake, so an alert can also arrive in
// place of the response head.
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

// connectError applies N2 and N4. A peer that resets a connection right after it
// accepted it can make connect(2) itself fail with ECONNRESET.
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

// isTLSAlert reports whether err is a TLS alert, sent or received. crypto/tls
// wraps most alerts in a net.OpError with one of these operations.
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

// http2Code is an error code of RFC 9113 §7.
type http2Code uint32

// protocolError reports whether the code accuses the other end of a protocol
// violation. The remaining codes only end a stream.
func (c http2Code) protocolError() bool {
	switch c {
	case 0x1, 0x3, 0x5, 0x6, 0x9, 0xc, 0xd: // PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED,
		// FRAME_SIZE_ERROR, COMPRESSION_ERROR, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED
		return true
	}
	return false
}

// http2Error classifies an HTTP/2 stream or connection that ended before the head.
func http2Error(phase Phase, err error) Class {
	if phase > PhaseProcessing {
		return NoClass
	}
	if stream := withFields(err, "StreamID", "Code", "Cause"); stream.IsValid() {
		if code := stream.FieldByName("Code"); code.CanUint() && http2Code(code.Uint()).protocolError() {
			return Protocol
		}
		return ConnectionReset
	}
	if withFields(err, "LastStreamID", "ErrCode", "DebugData").IsValid() { // a GOAWAY
		return ConnectionReset
	}
	return NoClass
}

// withFields returns the first error in the chain of err that is a struct with these fields, or the
// zero Value. So the errors of an HTTP/2 implementation are known without its package, whether it
// is golang.org/x/net/http2 or the one inside net/http, which does not export their types.
func withFields(err error, names ...string) reflect.Value {
	if err == nil {
		return reflect.Value{}
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Struct && !slices.ContainsFunc(names, func(name string) bool { return !v.FieldByName(name).IsValid() }) {
		return v
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range many.Unwrap() {
			if v := withFields(err, names...); v.IsValid() {
				return v
			}
		}
		return reflect.Value{}
	}
	return withFields(errors.Unwrap(err), names...)
}

// untyped returns the class of an error whose type says nothing (spec §3).
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

// isIO reports whether err comes from the connection, not from the data read from it.
func isIO(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return true
	}
	_, op := errors.AsType[*net.OpError](err)
	_, errno := errors.AsType[syscall.Errno](err)
	return op || errno
}
