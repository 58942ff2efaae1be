package fetch_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// deadRig has an origin at an address of loopback, the same port of others that do not answer, and a client. Nothing
// listens at further addresses, which refuse. 127.0.0.0/16 is forbidden.
type deadRig struct {
	port   uint16
	client *fetch.Client
}

// newDeadRig returns a rig for a name with these addresses: "good", "dead", "refused" and "denied".
func newDeadRig(t *testing.T, net8 byte, kinds ...string) (r *deadRig, addrs []string) {
	t.Helper()
	good := fmt.Sprintf("127.%d.0.200", net8)
	l := listenOn(t, good+":0", true)
	server := &http.Server{Handler: http.HandlerFunc(ok)}
	go func() { _ = server.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	r = &deadRig{port: netip.MustParseAddrPort(l.Addr().String()).Port()}
	for i, kind := range kinds {
		addr := [4]byte{127, net8, 0, byte(i + 1)}
		switch kind {
		case "good":
			addr[3] = 200
		case "dead":
			swallow(t, addr, r.port)
		case "denied":
			addr[1] = 0
		}
		addrs = append(addrs, netip.AddrFrom4(addr).String())
	}
	r.client = newClient(t, fetch.Config{
		Resolver: newNames(map[string][][]string{"dead.test": {addrs}}).resolver(t),
		Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{r.port},
			DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/16")}},
	})
	return r, addrs
}

// TestDeadAddresses fetches from a name with addresses of every kind.
func TestDeadAddresses(t *testing.T) {
	t.Parallel()
	many := func(n int, kind string, then ...string) []string {
		return append(slices.Repeat([]string{kind}, n), then...)
	}
	for i, row := range []struct {
		name   string
		kinds  []string
		class  classify.Class // none: success
		reason string
		least  time.Duration // to connect
	}{
		{"1 dead of ten", many(1, "dead", many(9, "good")...), 0, "", 250 * time.Millisecond},
		{"2 dead of ten", many(2, "dead", many(8, "good")...), 0, "", 500 * time.Millisecond},
		{"4 dead of ten", many(4, "dead", many(6, "good")...), 0, "", time.Second},
		{"9 dead of ten", many(9, "dead", "good"), 0, "", 2250 * time.Millisecond},
		{"denied, dead and refused before a good one", []string{"denied", "dead", "refused", "denied", "good"}, 0, "", 250 * time.Millisecond},
		{"denied only", many(5, "denied"), classify.TargetBlocked, "address_denied", 0},
		{"denied, and one refused", []string{"denied", "refused"}, classify.ConnectFailure, "permitted_addresses_failed", 0},
		{"refused, and one denied", []string{"refused", "denied"}, classify.ConnectRefused, "", 0},
		{"refused, and one dead", []string{"refused", "dead"}, classify.ConnectRefused, "", time.Second},
		{"dead, and one refused", []string{"dead", "refused"}, classify.ConnectTimeout, "", time.Second},
		{"dead only", many(10, "dead"), classify.ConnectTimeout, "", time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			rig, addrs := newDeadRig(t, byte(20+i), row.kinds...)
			r := get(t, fmt.Sprintf("http://dead.test:%d/", rig.port))
			r.Policy.MaxAttempts = 1
			if row.class != 0 {
				r.ConnectTimeout = time.Second
			}
			start := time.Now()
			out := rig.client.Fetch(t.Context(), r, nil)
			took := time.Since(start)
			if got := classOf(out.Failure); got != row.class || took < row.least || out.Failure != nil && out.Failure.Reason != row.reason {
				t.Errorf("%s (%+v) after %s, want %s, %q after %s", got, out.Failure, took, row.class, row.reason, row.least)
			}
			if won := out.Hops[0].Exchange.RemoteAddress; row.class == 0 && won != fmt.Sprintf("%s:%d", addrs[len(addrs)-1], rig.port) {
				t.Errorf("connected to %s, want the last of %s", won, addrs)
			}
			if open := rig.client.Connections().Open; row.class == 0 && open != 1 {
				t.Errorf("%d sockets are open, want one", open)
			}
		})
	}
}

// swallow makes connections to an address time out. The queue of its listener is full, so the
// kernel does not answer.
func swallow(t *testing.T, addr [4]byte, port uint16) {
	t.Helper()
	at := &syscall.SockaddrInet4{Port: int(port), Addr: addr}
	open := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
		must(t, err)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return fd
	}
	listener := open()
	must(t, syscall.Bind(listener, at))
	must(t, syscall.Listen(listener, 0))
	for range 3 {
		_ = syscall.Connect(open(), at) // in progress, and so for good once the room is taken
	}
}
