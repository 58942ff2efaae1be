package classify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"fetchd/classify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failure produces a real error, and holds its class in the phase in which it
// occurs.
type failure struct {
	name  string
	phase classify.Phase
	want  classify.Class
	make  func(t *testing.T) error
}

// TestError checks each error against every class: exactly one matches.
func TestError(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	var rows []failure
	for _, more := range [][]failure{
		lookups(o), connects(o), handshakes(o), requests(o), heads(o), streams(o), bodies(o), limits(o),
	} {
		rows = append(rows, more...)
	}
	names := make(map[string]bool)
	for _, row := range rows {
		if names[row.name] {
			t.Errorf("two rows are called %q", row.name)
		}
		names[row.name] = true
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := row.make(t)
			if err == nil {
				t.Fatal("no error was made")
			}
			for _, form := range wrappings(err) {
				got := classify.Error(row.phase, form.err)
				for _, class := range classify.Classes() {
					if matches := got == class; matches != (class == row.want) {
						t.Errorf("%s: Error(%s, %v) = %q, matches %q: %t", form.name, row.phase, form.err, got, class, matches)
					}
				}
			}
		})
	}
}

// form is an error as callers may wrap it.
type form struct {
	name string
	err  error
}

func wrappings(err error) []form {
	return []form{
		{"bare", err},
		{"wrapped", fmt.Errorf("fetch: %w", err)},
		{"wrapped twice", fmt.Errorf("fetch: %w", fmt.Errorf("attempt 1: %w", err))},
		{"with another", fmt.Errorf("%w: %w", errors.New("fetch"), err)},
		{"joined", errors.Join(errors.New("close: no matter"), err)},
		{"joined and wrapped", fmt.Errorf("fetch: %w", errors.Join(err, errors.New("close: no matter")))},
		{"in a url.Error", &url.Error{Op: "Get", URL: "http://origin.example/", Err: err}},
	}
}

// phases lists every phase and one unknown number.
var phases = []classify.Phase{
	classify.NoPhase, classify.PhasePolicy, classify.PhaseResolve, classify.PhaseConnect, classify.PhaseTLS,
	classify.PhaseRequest, classify.PhaseProcessing, classify.PhaseTransfer, 200,
}

// TestErrorInEveryPhase checks the class of one error in each phase. The classes
// are in the order of phases.
func TestErrorInEveryPhase(t *testing.T) {
	t.Parallel()
	o := startOrigin(t)
	const (
		cancelled, internal, deadline = classify.Cancelled, classify.Internal, classify.Deadline
		notFound, failure             = classify.DNSNotFound, classify.DNSFailure
		refused, timeout, connect     = classify.ConnectRefused, classify.ConnectTimeout, classify.ConnectFailure
		reset, protocol, body         = classify.ConnectionReset, classify.Protocol, classify.BodyInterrupted
		handshake, certificate        = classify.TLSHandshake, classify.TLSCertificate
	)
	silent := func(t *testing.T) net.Conn { return dialed(t, o.Addr("tcp-silent")) }
	for _, tt := range []struct {
		name string
		make func(t *testing.T) error
		want [9]classify.Class
	}{
		{"refused", func(t *testing.T) error { return connectError(t, new(net.Dialer), o.Addr("refused")) },
			[9]classify.Class{internal, internal, failure, refused, handshake, reset, reset, body, internal}},
		{"reset", resetError, [9]classify.Class{internal, internal, failure, reset, handshake, reset, reset, body, internal}},
		{"closed", func(t *testing.T) error {
			_, err := dialed(t, o.Addr("tcp-close")).Read(make([]byte, 1))
			return err
		}, [9]classify.Class{internal, internal, failure, connect, handshake, reset, reset, body, internal}},
		{"closed by ourselves", func(t *testing.T) error {
			conn := silent(t)
			_ = conn.Close()
			_, err := conn.Read(make([]byte, 1))
			return err
		}, [9]classify.Class{internal, internal, failure, connect, handshake, reset, reset, body, internal}},
		{"too short", func(t *testing.T) error {
			_, err := io.ReadFull(strings.NewReader("a"), make([]byte, 2))
			return err
		}, [9]classify.Class{internal, internal, failure, connect, handshake, reset, reset, body, internal}},
		{"no descriptor for a socket", func(*testing.T) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}, [9]classify.Class{internal, internal, internal, internal, internal, internal, internal, internal, internal}},
		{"no descriptor in the whole system, for a lookup", func(*testing.T) error {
			return &net.DNSError{Name: "origin.example", UnwrapErr: os.NewSyscallError("socket", syscall.ENFILE)}
		}, [9]classify.Class{internal, internal, internal, internal, internal, internal, internal, internal, internal}},
		{"a pipe that is closed", func(*testing.T) error {
			r, w := io.Pipe()
			_ = r.Close()
			_, err := io.WriteString(w, "a")
			return err
		}, [9]classify.Class{internal, internal, failure, connect, handshake, reset, reset, body, internal}},
		{"time-out of a connection", func(t *testing.T) error {
			conn := silent(t)
			if err := conn.SetDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			_, err := conn.Read(make([]byte, 1))
			return err
		}, timeouts(deadline, failure, timeout)},
		{"time-out of a context", func(t *testing.T) error {
			ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
			defer cancel()
			return ctx.Err()
		}, timeouts(deadline, failure, timeout)},
		{"cancelled", func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx.Err()
		}, all(cancelled)},
		{"no such name", func(t *testing.T) error {
			return lookupError(t.Context(), t, nameServer(t, dnsmessage.RCodeNameError, false))
		}, all(notFound)},
		{"name server fails", func(t *testing.T) error {
			return lookupError(t.Context(), t, nameServer(t, dnsmessage.RCodeServerFailure, false))
		}, all(failure)},
		{"certificate", func(t *testing.T) error {
			return handshakeError(t.Context(), t, o.Addr("tls-expired"), &tls.Config{RootCAs: o.CA()})
		}, [9]classify.Class{certificate, certificate, failure, certificate, certificate, certificate, certificate, certificate, certificate}},
		{"a certificate that nobody has read", func(t *testing.T) error {
			_, err := new(x509.Certificate).Verify(x509.VerifyOptions{Roots: x509.NewCertPool(), DNSName: "origin.test"})
			return err
		}, [9]classify.Class{internal, internal, failure, connect, handshake, protocol, protocol, body, internal}},
		{"alert", func(t *testing.T) error {
			return handshakeError(t.Context(), t, o.Addr("tls-old"), &tls.Config{RootCAs: o.CA()})
		}, [9]classify.Class{handshake, handshake, failure, handshake, handshake, handshake, handshake, body, internal}},
		{"no TLS record", func(t *testing.T) error {
			return handshakeError(t.Context(), t, o.Addr("tls-plain"), &tls.Config{RootCAs: o.CA()})
		}, [9]classify.Class{handshake, handshake, failure, handshake, handshake, handshake, handshake, body, internal}},
		{"stream ended for a breach", func(t *testing.T) error {
			return headError(t, newClient(t, o), o.URL("h2fault", "/s/breach/h2-rst:code=3"))
		}, [9]classify.Class{protocol, protocol, failure, protocol, handshake, protocol, protocol, body, internal}},
		{"stream given up", func(t *testing.T) error {
			return headError(t, newClient(t, o), o.URL("h2fault", "/s/given-up/h2-rst:code=2"))
		}, [9]classify.Class{reset, reset, failure, reset, handshake, reset, reset, body, internal}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.make(t)
			if err == nil {
				t.Fatal("no error was made")
			}
			for i, phase := range phases {
				if got := classify.Error(phase, err); got != tt.want[i] {
					t.Errorf("Error(%d %s, %v) = %q, want %q", phase, phase, err, got, tt.want[i])
				}
			}
		})
	}
}

func all(c classify.Class) [9]classify.Class { return [9]classify.Class{c, c, c, c, c, c, c, c, c} }

// timeouts are the classes of a timeout in the order of phases.
func timeouts(deadline, lookup, connect classify.Class) [9]classify.Class {
	return [9]classify.Class{
		deadline, deadline, lookup, connect, connect,
		classify.WriteTimeout, classify.ResponseTimeout, classify.BodyTimeout, deadline,
	}
}

// TestErrorWithoutType checks that the phase decides the class of an untyped error
// (spec §3), and that its text never matters.
func TestErrorWithoutType(t *testing.T) {
	t.Parallel()
	want := []classify.Class{
		classify.Internal, classify.Internal, classify.DNSFailure, classify.ConnectFailure, classify.TLSHandshake,
		classify.Protocol, classify.Protocol, classify.BodyInterrupted, classify.Internal,
	}
	for _, text := range []string{
		"", "no such host", "connection refused", "connection reset by peer", "EOF", "unexpected EOF", "i/o timeout",
		"context canceled", "context deadline exceeded", "x509: certificate has expired or is not yet valid",
		"remote error: tls: bad certificate", "http2: server sent GOAWAY and closed the connection",
		"stream error: stream ID 1; INTERNAL_ERROR; received from peer", "http: server closed idle connection",
	} {
		for i, phase := range phases {
			for _, form := range wrappings(errors.New(text)) {
				if got := classify.Error(phase, form.err); got != want[i] {
					t.Errorf("%s: Error(%d %s, an error that says %q) = %q, want %q", form.name, phase, phase, text, got, want[i])
				}
			}
		}
	}
}

func TestErrorOfNil(t *testing.T) {
	t.Parallel()
	for _, phase := range phases {
		if got := classify.Error(phase, nil); got != classify.NoClass {
			t.Errorf("Error(%d %s, nil) = %q, want no class", phase, phase, got)
		}
	}
}

// known is an error that knows its class.
type known struct{ class classify.Class }

// Error implements error.
func (k known) Error() string { return "known" }

// ErrorClass implements classify.Classified.
func (k known) ErrorClass() classify.Class { return k.class }

// TestClassified checks that a Classified error keeps its class in each phase and form.
func TestClassified(t *testing.T) {
	t.Parallel()
	for _, class := range classify.Classes() {
		err := error(known{class})
		forms := append(wrappings(err),
			form{"before a cancel", errors.Join(err, context.Canceled)},
			form{"after a cancel", errors.Join(context.Canceled, err)},
			form{"after a time-out", fmt.Errorf("%w: %w", context.DeadlineExceeded, err)},
			form{"over an end", fmt.Errorf("%w: %w", io.EOF, err)})
		for _, phase := range phases {
			for _, form := range forms {
				if got := classify.Error(phase, form.err); got != class {
					t.Errorf("%s: Error(%d %s, %v) = %q, want %q", form.name, phase, phase, form.err, got, class)
				}
			}
		}
	}
}
