package fetch_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"syscall"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/test/need"
)

// silentListener accepts nothing, and its queue is full. Connections to it get no answer.
func silentListener(t *testing.T, address string) net.Listener {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", address)
	if err != nil {
		need.Missing(t, "run it where loopback has this address", "this system cannot listen on %s: %v", address, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		t.Fatalf("%T is no TCP listener", l)
	}
	raw, err := tcp.SyscallConn()
	must(t, err)
	var shrunk error
	if err := raw.Control(func(fd uintptr) { shrunk = syscall.Listen(int(fd), 0) }); err != nil || shrunk != nil {
		t.Fatal(err, shrunk)
	}
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return l
}

// TestTwoFamiliesAtOnce checks that the dialer tries IPv4 while IPv6 is silent. The guard then runs
// in two goroutines, which the race detector checks.
func TestTwoFamiliesAtOnce(t *testing.T) {
	t.Parallel()
	silent := silentListener(t, "[::1]:0")
	_, port, _ := net.SplitHostPort(silent.Addr().String())
	s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	_ = s.Listener.Close()
	s.Listener = listenOn(t, "127.0.0.1:"+port, true)
	s.Start()
	t.Cleanup(s.Close)
	number, err := strconv.ParseUint(port, 10, 16)
	must(t, err)
	c := newClient(t, fetch.Config{
		Egress: fetch.Egress{
			AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")},
			AllowPorts: []uint16{uint16(number)},
		},
		Resolver: newNames(map[string][][]string{"origin.test": {{"::1", "127.0.0.1"}}}).resolver(t),
	})
	req := get(t, "http://origin.test:"+port+"/")
	out := c.Fetch(t.Context(), req, nil)
	if out.Kind != classify.Success || out.Attempts != 1 {
		t.Fatalf("%s after %d attempts (%+v), want success after 1", out.Kind, out.Attempts, out.Failure)
	}
	if got, want := out.Hops[0].Exchange.RemoteAddress, "127.0.0.1:"+port; got != want {
		t.Errorf("connected to %s, want %s", got, want)
	}
}
