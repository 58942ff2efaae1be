package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"unicode"
)

// Reasons of an [Error].
const (
	ReasonUnavailable = "store_unavailable" // refused without a request, because the last uploads failed
	ReasonError       = "store_error"
	ReasonTimeout     = "store_timeout" // a request took longer than its limit
)

// ErrUnavailable matches the error of a store that refuses uploads because the last ones failed.
var ErrUnavailable = errors.New("refuses uploads for a moment, because the last ones failed")

// ErrTooLarge is returned for an object above the size limit of the store. It is not a failure of
// the store.
var ErrTooLarge = errors.New("the object is larger than the store accepts")

// Error is a failure of the store. No text of it contains a credential.
type Error struct {
	store, op, reason string
	down              bool   // it shows that the store is down; an error of one object does not
	status            int    // of an S3 response, or 0
	code              string // of an S3 response: printable, short
	text              string // of err, if there was no response: printable, capped
	err               error
}

// Reason returns [ReasonUnavailable], [ReasonError] or [ReasonTimeout].
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Error returns a text for the operator. It may contain addresses and paths.
func (e *Error) Error() string { return e.with(e.text) }

// Detail returns a text for callers, without addresses and paths.
func (e *Error) Detail() string { return e.with(plain(e.err)) }

func (e *Error) with(text string) string {
	switch {
	case e.status != 0 && e.code != "":
		text = fmt.Sprintf("%s (status %d)", e.code, e.status)
	case e.status != 0:
		text = fmt.Sprintf("status %d", e.status)
	case e.code != "":
		text = e.code
	}
	if e.op == "" {
		return fmt.Sprintf("store %s %s", e.store, text)
	}
	return fmt.Sprintf("store %s: %s: %s", e.store, e.op, text)
}

var errLimit = errors.New("no complete response within the time limit")

// plain describes an error without addresses and paths.
func plain(err error) string {
	for _, own := range []error{ErrUnavailable, errClosed, errLimit, errReplaced} {
		if errors.Is(err, own) {
			return fmt.Sprint(own)
		}
	}
	if timedOut(err) {
		return fmt.Sprint(errLimit)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host name was not resolved"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Sprint(errno)
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	op, ok := errors.AsType[*net.OpError](err)
	alert := ok && (op.Op == "remote error" || op.Op == "local error")
	_, path := errors.AsType[*fs.PathError](err) // of os.Root, for example: a link leads out of the directory
	_, link := errors.AsType[*os.LinkError](err)
	switch {
	case certificate || authority || record || alert:
		return "TLS failed"
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	case path || link:
		return "the file system refused it"
	}
	return "no valid response"
}

// timedOut reports whether an error is due to a time limit: that of a request, or of its dial or
// handshake.
func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return errors.Is(err, errLimit) || ok && e.Timeout()
}

// clean makes a text that a store may have written safe to print: at most most bytes of printable
// characters, and nothing in secrets.
func clean(text string, most int, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text[:min(len(text), 4*most)])
	if len(text) > most {
		cut := 0
		for i := range text {
			if i > most-len("…") {
				break
			}
			cut = i
		}
		text = text[:cut] + "…"
	}
	return text
}

// withoutURL returns the error inside a *url.Error, whose text has the URL of the request.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
