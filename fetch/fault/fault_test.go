package fault_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"fetchd/classify"
	"fetchd/fetch/fault"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	blocked := fault.New(classify.TargetBlocked, classify.PhasePolicy, "name_denied")
	for _, row := range []struct {
		name   string
		err    error
		text   string
		class  classify.Class
		reason string
	}{
		{"with a reason", blocked, "target_blocked: name_denied", classify.TargetBlocked, "name_denied"},
		{"without one", fault.New(classify.Internal, classify.NoPhase, ""), "internal", classify.Internal, ""},
		{"wrapped", fmt.Errorf("dial: %w", blocked), "dial: target_blocked: name_denied", classify.TargetBlocked, "name_denied"},
		{"in a phase", fault.InPhase(classify.PhaseTLS, blocked), "tls: target_blocked: name_denied", classify.TargetBlocked, "name_denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(row.err); got != row.text {
				t.Errorf("text %q, want %q", got, row.text)
			}
			if got := classify.Error(classify.NoPhase, row.err); got != row.class {
				t.Errorf("class %s, want %s", got, row.class)
			}
			if got := fault.ReasonOf(row.err); got != row.reason {
				t.Errorf("reason %q, want %q", got, row.reason)
			}
			for class := range map[classify.Class]bool{classify.TargetBlocked: true, classify.Internal: true, classify.Protocol: true} {
				if got := errors.Is(row.err, &fault.Error{Class: class}); got != (class == row.class) {
					t.Errorf("matches class %s: %t", class, got)
				}
			}
			if errors.Is(row.err, io.EOF) {
				t.Error("matches io.EOF")
			}
		})
	}
}

func TestReasonOf(t *testing.T) {
	t.Parallel()
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
	}
	for _, row := range []struct {
		name   string
		err    error
		reason string
	}{
		{"none", nil, ""},
		{"an expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, "certificate_expired"},
		{"another invalid certificate", x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, "certificate_invalid"},
		{"a certificate for another name", x509.HostnameError{}, "certificate_wrong_name"},
		{"an unknown authority", x509.UnknownAuthorityError{}, "certificate_unknown_authority"},
		{"no route to the network", dial(syscall.ENETUNREACH), "unreachable"},
		{"no route to the host", dial(syscall.EHOSTUNREACH), "unreachable"},
		{"a refused connection", dial(syscall.ECONNREFUSED), ""},
		{"another error", io.EOF, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := fault.ReasonOf(row.err); got != row.reason {
				t.Errorf("reason %q, want %q", got, row.reason)
			}
		})
	}
}
