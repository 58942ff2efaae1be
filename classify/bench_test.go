package classify_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"fetchd/classify"
)

// BenchmarkDecide times decisions that an engine makes for each attempt.
func BenchmarkDecide(b *testing.B) {
	policy := classify.Download.Policy()
	observed := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)
	for _, bb := range []struct {
		name string
		seen classify.Observation
	}{
		{"success", classify.Observation{Attempt: 1, Status: 200}},
		{"503", classify.Observation{Attempt: 2, Status: 503}},
		{"429 with date", classify.Observation{
			Attempt: 1, Status: 429,
			RetryAfter: "Mon, 02 Mar 2026 07:00:20 GMT", Date: "Mon, 02 Mar 2026 07:00:00 GMT",
		}},
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

// BenchmarkError times errors in the wrapping in which net/http returns them.
func BenchmarkError(b *testing.B) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, bb := range []struct {
		name  string
		phase classify.Phase
		err   error
	}{
		{"refused", classify.PhaseConnect, &url.Error{Op: "Get", URL: "http://origin.example/", Err: refused}},
		{"closed before the head", classify.PhaseProcessing, &url.Error{Op: "Get", URL: "http://origin.example/", Err: io.EOF}},
		{"short body", classify.PhaseTransfer, io.ErrUnexpectedEOF},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				classify.Error(bb.phase, bb.err)
			}
		})
	}
}
