//go:build linux

package crawls

import (
	"context"
	"os"
	"testing"
	"time"
)

// limit ends a test that hangs. No test comes near it where nothing is wrong.
const limit = 4 * time.Minute

// long skips a test that was not asked for, and bounds one that was. They run side by
// side: most of their time they wait for leases to expire.
func long(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("FETCHD_LONG") != "1" {
		t.Skip("starts whole crawls and takes up to a minute: set FETCHD_LONG=1")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// cannot skips a test that was asked for, and that this machine cannot run. The
// gate must not take that for a pass.
func cannot(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// until asks done every few milliseconds and fails the test where ctx ends first.
func until(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never came that %s: %v", what, context.Cause(ctx))
		}
	}
}
