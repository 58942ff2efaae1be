// Package fault has the errors of package fetch that know their class.
package fault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"syscall"

	"fetchd/classify"
)

// Error is an error that knows its class. It implements [classify.Classified].
type Error struct {
	Class     classify.Class
	Phase     classify.Phase // NoPhase: the caller knows it
	Reason    string         // the finer cause in lower_snake_case; empty: none
	Policy    string         // the policy that forbids the target; empty: the egress policy of the service, or another class
	Rule      string         // the rule of Policy, such as "deny-names: *.ads.example"
	Permitted string         // what Policy permits instead; empty: not known
}

// OutOfMemory is the error of a fetch for which the memory budget has nothing left.
var OutOfMemory = New(classify.OutOfMemory, classify.NoPhase, "memory")

// NoDescriptor is the reason of INTERNAL if this process or machine may open no more files and sockets.
const NoDescriptor = "too_many_open_files"

// IncompleteChain is the reason of TLS_CERTIFICATE if the certificate of the issuer was not sent and is not known,
// and the origin's own certificate says where it can be found.
const IncompleteChain = "incomplete_chain"

// PlainHTTP is the reason of TLS_HANDSHAKE if the origin answers with HTTP, or with HTML alone, instead of TLS.
const PlainHTTP = "plain_http"

// New returns an error of a class.
func New(class classify.Class, phase classify.Phase, reason string) *Error {
	return &Error{Class: class, Phase: phase, Reason: reason}
}

// RouteNotAllowed returns the error of a fetch that goes on by an egress route which a policy does not permit. An empty
// route is that of the settings.
func RouteNotAllowed(policy, route string) *Error {
	return &Error{Class: classify.TargetBlocked, Phase: classify.PhasePolicy, Reason: "route_not_allowed", Policy: policy, Rule: route}
}

// Error returns the class, the reason, and the policy that forbids the target.
func (e *Error) Error() string {
	text := e.Class.String()
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Policy != "" {
		text += " by the policy " + e.Policy
	}
	if e.Rule != "" {
		text += ", " + e.Rule
	}
	return text
}

// ErrorClass implements [classify.Classified].
func (e *Error) ErrorClass() classify.Class { return e.Class }

// Is matches every *Error of the same class.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Class == e.Class
}

// CallerError is why the context of a caller has ended. Its class is that of the context's error. The
// cause decides nothing, because it is the caller's own and may have any type.
type CallerError struct{ ended, cause error }

// CallerErrorOf returns why a caller's context has ended, as a *[CallerError]. Nil means that it has not.
func CallerErrorOf(ctx context.Context) error {
	ended := ctx.Err()
	if ended == nil {
		return nil
	}
	return &CallerError{ended, context.Cause(ctx)}
}

// Error returns the text of the cause.
func (e *CallerError) Error() string { return e.cause.Error() }

// Unwrap returns the error of the context.
func (e *CallerError) Unwrap() error { return e.ended }

// ErrorClass implements [classify.Classified].
func (e *CallerError) ErrorClass() classify.Class {
	if errors.Is(e.ended, context.DeadlineExceeded) {
		return classify.Deadline
	}
	return classify.Cancelled
}

// PhaseError adds the phase of connecting in which an error occurred.
type PhaseError struct {
	Phase classify.Phase
	err   error
}

// InPhase adds a phase to an error.
func InPhase(phase classify.Phase, err error) error { return &PhaseError{phase, err} }

// Error returns the phase and the cause.
func (e *PhaseError) Error() string { return e.Phase.String() + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *PhaseError) Unwrap() error { return e.err }

// lacksIssuer reports whether the chain of err is incomplete (N6).
func lacksIssuer(unknown x509.UnknownAuthorityError, err error) bool {
	rejected, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok || len(rejected.UnverifiedCertificates) == 0 {
		return false
	}
	leaf := rejected.UnverifiedCertificates[0]
	// crypto/x509 gives a hint if a certificate has the name of the issuer and has not signed the leaf.
	return unknown == x509.UnknownAuthorityError{Cert: leaf} && len(leaf.IssuingCertificateURL) > 0 && !bytes.Equal(leaf.RawIssuer, leaf.RawSubject)
}

// ReasonOf returns the finer cause of an error, or "" if it has none.
func ReasonOf(err error) string {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Reason
	}
	if classify.NoDescriptor(err) {
		return NoDescriptor
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "certificate_expired" // or not yet valid
		}
		return "certificate_invalid"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "certificate_wrong_name"
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if lacksIssuer(unknown, err) {
			return IncompleteChain
		}
		return "certificate_unknown_authority"
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && (string(record.RecordHeader[:]) == "HTTP/" || record.RecordHeader[0] == '<') {
		return PlainHTTP
	}
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
		return "unreachable"
	}
	return ""
}
