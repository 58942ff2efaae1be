package classify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"fetchd/classify"
)

// BenchmarkDecide measures the decisions that an engine makes for each hop and attempt:
// each kind of outcome, and one class of each family of spec §3. None may allocate.
func BenchmarkDecide(b *testing.B) {
	policy := classify.Download.Policy()
	observed := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)
	for _, bb := range []struct {
		name string
		seen classify.Observation
	}{
		{"success", classify.Observation{Status: 200}},
		{"not modified", classify.Observation{Status: 304, Conditional: true}},
		{"redirect followed", classify.Observation{Status: 302, Location: classify.InScope, Redirects: 1}},
		{"redirect out of scope", classify.Observation{Status: 302, Location: classify.OutOfScope}},
		{"503", classify.Observation{Attempt: 2, Status: 503}},
		{"503 the last time", classify.Observation{Attempt: 4, Status: 503}},
		{"503 to POST", classify.Observation{Method: "POST", Status: 503}},
		{"429 with seconds", classify.Observation{Status: 429, RetryAfter: "20"}},
		{"429 with date", classify.Observation{
			Attempt: 1, Status: 429,
			RetryAfter: "Mon, 02 Mar 2026 07:00:20 GMT", Date: "Mon, 02 Mar 2026 07:00:00 GMT",
		}},
		{"401", classify.Observation{Status: 401}},
		{"401 refreshed", classify.Observation{Status: 401, Auth: classify.Refreshed}},
		{"404", classify.Observation{Status: 404}},
		{"408", classify.Observation{Status: 408}},
		{"lookup", failing(0, classify.DNSNotFound)},
		{"connect", failing(0, classify.ConnectRefused)},
		{"TLS", failing(0, classify.TLSCertificate)},
		{"head", failing(0, classify.ResponseTimeout)},
		{"protocol", failing(0, classify.Protocol)},
		{"body cut", failing(200, classify.BodyInterrupted)},
		{"attempt time", failing(200, classify.AttemptTimeout)},
		{"redirect refused", failing(302, classify.RedirectRejected)},
		{"content", failing(200, classify.ContentType)},
		{"integrity", failing(200, classify.Integrity)},
		{"target blocked", failing(0, classify.TargetBlocked)},
		{"deadline", failing(0, classify.Deadline)},
		{"shutdown", failing(0, classify.Shutdown)},
		{"three faults at once", failing(200, classify.BodyTooLarge, classify.Integrity, classify.BodyTimeout)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			bb.seen.Observed, bb.seen.TimeLeft = observed, classify.Unbounded
			b.ReportAllocs()
			for b.Loop() {
				classify.Decide(&policy, &bb.seen)
			}
		})
	}
}

// failing returns the observation of a GET whose first attempt has these faults.
func failing(status int, faults ...classify.Class) classify.Observation {
	return classify.Observation{Attempt: 1, Status: status, Faults: classify.FaultsOf(faults...)}
}

// BenchmarkError measures errors wrapped as net/http returns them.
func BenchmarkError(b *testing.B) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	lookup := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for _, bb := range []struct {
		name  string
		phase classify.Phase
		err   error
	}{
		{"not found", classify.PhaseConnect, lookup},
		{"refused", classify.PhaseConnect, refused},
		{"untrusted", classify.PhaseTLS, untrusted},
		{"timeout", classify.PhaseProcessing, os.ErrDeadlineExceeded},
		{"closed before the head", classify.PhaseProcessing, io.EOF},
		{"cancelled", classify.PhaseProcessing, context.Canceled},
	} {
		b.Run(bb.name, func(b *testing.B) {
			err := &url.Error{Op: "Get", URL: "http://origin.example/", Err: bb.err}
			b.ReportAllocs()
			for b.Loop() {
				classify.Error(bb.phase, err)
			}
		})
	}
	b.Run("short body", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			classify.Error(classify.PhaseTransfer, io.ErrUnexpectedEOF)
		}
	})
}
