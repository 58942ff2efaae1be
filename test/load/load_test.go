//go:build linux

package load

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"fetchd/fetch"
	"fetchd/test/rig"
)

// long is [rig.Long] with the time limit of each test.
func long(t *testing.T) context.Context {
	t.Helper()
	return rig.Long(t, 55*time.Second)
}

// await receives one value from c.
func await[T any](ctx context.Context, c <-chan T) (T, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}

// loopback returns an egress policy that allows the ports of addresses on loopback.
func loopback(addresses ...string) (fetch.Egress, error) {
	open := fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, address := range addresses {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return open, err
		}
		open.AllowPorts = append(open.AllowPorts, at.Port())
	}
	return open, nil
}

// descriptors returns the number of open file descriptors of this process.
func descriptors() (int, error) {
	open, err := os.ReadDir("/proc/self/fd")
	return len(open), err
}
