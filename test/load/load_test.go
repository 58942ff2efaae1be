//go:build linux

package load

import (
	"context"
	"testing"
	"time"

	"fetchd/test/rig"
)

// long is [rig.Long] with the time limit of each test.
func long(t *testing.T) context.Context {
	t.Helper()
	return rig.Long(t, 55*time.Second)
}
