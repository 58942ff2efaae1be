//go:build !linux

package classify_test

import (
	"testing"

	"fetchd/test/need"
)

func connectReset(t *testing.T) error {
	t.Helper()
	need.Linux(t, "only on Linux a socket that connects can be watched until it is reset")
	return nil
}
