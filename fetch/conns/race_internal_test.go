package conns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
)

// never is later than any test waits.
const never = time.Hour

// answer is what a name server says about a family, and when.
type answer struct {
	after time.Duration
	addrs string // separated by spaces
	err   error
}

// fate is what becomes of a connection to an address, and when. The zero value is a connection at once.
type fate struct {
	after time.Duration
	err   error
}

// track is a world with name servers and addresses in which a race is run.
type track struct {
	v6, v4     answer
	fates      map[string]fate // dead if it is not there and begins with "192.0.2." or "2001:db8::dead"
	open, most atomic.Int32
	start      time.Time
	mu         sync.Mutex
	tried      []string // with the time
}

var (
	errMissing  = &net.DNSError{Err: "no such host", IsNotFound: true}
	errServfail = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
)

// LookupNetIP implements Resolver.
func (k *track) LookupNetIP(ctx context.Context, network, _ string) ([]netip.Addr, error) {
	a := map[string]answer{"ip6": k.v6, "ip4": k.v4}[network]
	if err := pause(ctx, a.after); err != nil {
		return nil, &net.DNSError{Err: "no answer", UnwrapErr: err}
	}
	var addrs []netip.Addr
	for text := range strings.FieldsSeq(a.addrs) {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs, a.err
}

func (k *track) connect(ctx context.Context, addr netip.Addr) (net.Conn, error) {
	k.mu.Lock()
	k.tried = append(k.tried, fmt.Sprintf("%s %s", addr, time.Since(k.start)))
	k.mu.Unlock()
	k.most.Store(max(k.most.Load(), k.open.Add(1)))
	f, ok := k.fates[addr.String()]
	if !ok {
		f.after = never
	}
	err := pause(ctx, f.after)
	if err == nil {
		err = f.err
	}
	if err != nil {
		k.open.Add(-1)
		return nil, err
	}
	return &counted{addr: addr.String(), open: &k.open}, nil
}

// pause waits, unless the context ends before.
func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	addr string
	open *atomic.Int32
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.open.Add(-1)
	return nil
}

// run runs a race, and ends it after 10 s.
func (k *track) run(ctx context.Context, network string) (winner string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	k.start = time.Now()
	r := &race{resolver: k, connect: k.connect}
	conn, err := r.run(ctx, network)
	took = time.Since(k.start)
	if c, ok := conn.(*counted); ok {
		winner = c.addr
		_ = c.Close()
	}
	return winner, took, err
}

// dead returns n addresses that do not answer.
func dead(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "192.0.2.%d ", i+1)
	}
	return all.String()
}

const (
	good4, good6   = "198.51.100.1", "2001:db8::1"
	other4, other6 = "198.51.100.2", "2001:db8::2"
)

var good = map[string]fate{good4: {}, good6: {}, other4: {}, other6: {}}

// TestRace checks which address wins, and when. In a bubble time is exact.
func TestRace(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	missing := answer{err: errMissing}
	refused := fate{0, syscall.ECONNREFUSED}
	for _, row := range []struct {
		name    string
		v6, v4  answer
		fates   map[string]fate
		network string // empty: tcp
		winner  string
		took    time.Duration
	}{
		{"one address", missing, answer{addrs: good4}, good, "", good4, 0},
		{"one address of IPv6", answer{addrs: good6}, missing, good, "", good6, 0},
		{"1 dead of ten", missing, answer{addrs: dead(1) + good4 + " " + other4}, good, "", good4, 250 * ms},
		{"2 dead of ten", missing, answer{addrs: dead(2) + good4 + " " + other4}, good, "", good4, 500 * ms},
		{"4 dead of ten", missing, answer{addrs: dead(4) + good4 + " " + other4}, good, "", good4, 1000 * ms},
		{"9 dead of ten", missing, answer{addrs: dead(9) + good4}, good, "", good4, 2250 * ms},
		{"IPv6 dead, IPv4 good", answer{addrs: "2001:db8::dead"}, answer{addrs: good4}, good, "", good4, 250 * ms},
		{"IPv4 dead, IPv6 good", answer{addrs: good6}, answer{addrs: dead(3)}, good, "", good6, 0},
		{"two dead of IPv6, one good of IPv4", answer{addrs: "2001:db8::dead 2001:db8::dead:1"}, answer{addrs: good4}, good, "", good4, 250 * ms},
		{"refused, then good", missing, answer{addrs: other4 + " " + good4}, map[string]fate{other4: refused, good4: {}}, "", good4, 0},
		{"refused late, then good", missing, answer{addrs: other4 + " " + good4}, map[string]fate{other4: {100 * ms, syscall.ECONNREFUSED}, good4: {}}, "", good4, 100 * ms},
		{"slow, and a second one that is dead", missing, answer{addrs: good4 + " " + dead(1)}, map[string]fate{good4: {time.Second, nil}}, "", good4, time.Second},
		{"slow, and given up for the fourth", missing, answer{addrs: good4 + " " + dead(2) + other4}, map[string]fate{good4: {time.Second, nil}, other4: {}}, "", other4, 750 * ms},
		{"slow, and the third of three", missing, answer{addrs: dead(2) + good4}, map[string]fate{good4: {9 * time.Second, nil}}, "", good4, 9500 * ms},
		{"no answer about IPv6", answer{after: never}, answer{addrs: good4}, good, "", good4, 50 * ms},
		{"no answer about IPv4", answer{addrs: good6}, answer{after: never}, good, "", good6, 0},
		{"SERVFAIL for IPv6", answer{err: errServfail}, answer{addrs: good4}, good, "", good4, 0},
		{"SERVFAIL for IPv4", answer{addrs: good6}, answer{err: errServfail}, good, "", good6, 0},
		{"late SERVFAIL for IPv6", answer{after: 20 * ms, err: errServfail}, answer{addrs: good4}, good, "", good4, 20 * ms},
		{"IPv6 a little late", answer{after: 40 * ms, addrs: good6}, answer{addrs: good4}, good, "", good6, 40 * ms},
		{"IPv6 late", answer{after: 1500 * ms, addrs: good6}, answer{addrs: good4}, good, "", good4, 50 * ms},
		{"IPv4 late", answer{addrs: good6}, answer{after: 1500 * ms, addrs: good4}, good, "", good6, 0},
		{"IPv4 dead, IPv6 late", answer{after: 1500 * ms, addrs: good6}, answer{addrs: dead(1)}, good, "", good6, 1500 * ms},
		{"IPv4 dead, IPv6 late, but not late enough", answer{after: 100 * ms, addrs: good6}, answer{addrs: dead(1)}, good, "", good6, 300 * ms},
		{"IPv4 refused, IPv6 late", answer{after: 1500 * ms, addrs: good6}, answer{addrs: other4}, map[string]fate{other4: refused, good6: {}}, "", good6, 1500 * ms},
		{"IPv4 refused after three dead, IPv6 late", answer{after: 1500 * ms, addrs: good6}, answer{addrs: dead(3) + other4}, map[string]fate{other4: refused, good6: {}}, "", good6, 1500 * ms},
		{"only IPv4 is asked for", answer{addrs: good6}, answer{addrs: dead(1) + good4}, good, "tcp4", good4, 250 * ms},
		{"only IPv6 is asked for", answer{after: 100 * ms, addrs: good6}, answer{addrs: good4}, good, "tcp6", good6, 100 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := &track{v6: row.v6, v4: row.v4, fates: row.fates}
				network := row.network
				if network == "" {
					network = "tcp"
				}
				winner, took, err := k.run(t.Context(), network)
				if err != nil || winner != row.winner || took != row.took {
					t.Errorf("%q after %s, %v, want %q after %s; tried %q", winner, took, err, row.winner, row.took, k.tried)
				}
				if k.open.Load() != 0 || k.most.Load() > maxSockets {
					t.Errorf("%d sockets are open, and %d were at once, want none and at most %d", k.open.Load(), k.most.Load(), maxSockets)
				}
			})
		})
	}
}

// TestRaceOrder checks that families alternate, and when each address is tried.
func TestRaceOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &track{v6: answer{addrs: "2001:db8::dead 2001:db8::2"}, v4: answer{addrs: dead(4)}, fates: map[string]fate{other6: {100 * time.Millisecond, syscall.ECONNREFUSED}}}
		_, took, err := k.run(t.Context(), "tcp")
		want := []string{"2001:db8::dead 0s", "192.0.2.1 250ms", "2001:db8::2 500ms", "192.0.2.2 600ms", "192.0.2.3 850ms", "192.0.2.4 1.1s"}
		if diff := cmp.Diff(want, k.tried); diff != "" {
			t.Errorf("tried (-want +got):\n%s", diff)
		}
		if took != 10*time.Second || err == nil { // the last three stay until the time-out
			t.Errorf("after %s: %v, want an error after 10 s", took, err)
		}
	})
}

// TestRaceLost checks the error if no address answers: it is that of the first one in order.
func TestRaceLost(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	errReset, errRefused, errFar := syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ENETUNREACH
	for _, row := range []struct {
		name   string
		v6, v4 answer
		fates  map[string]fate
		want   error
		took   time.Duration
	}{
		{"refused, then reset", answer{err: errMissing}, answer{addrs: good4 + " " + other4}, map[string]fate{good4: {0, errRefused}, other4: {0, errReset}}, errRefused, 0},
		{"the second fails first", answer{err: errMissing}, answer{addrs: good4 + " " + other4}, map[string]fate{good4: {time.Second, errRefused}, other4: {0, errReset}}, errRefused, time.Second},
		{"IPv6 comes first", answer{addrs: good6}, answer{addrs: good4}, map[string]fate{good6: {0, errReset}, good4: {0, errRefused}}, errReset, 0},
		{"IPv6 comes first, also if its addresses are late", answer{after: 100 * ms, addrs: good6}, answer{addrs: good4}, map[string]fate{good6: {0, errReset}, good4: {0, errRefused}}, errReset, 100 * ms},
		{"no route to IPv6", answer{addrs: good6}, answer{addrs: good4}, map[string]fate{good6: {0, errFar}, good4: {0, errRefused}}, errRefused, 0},
		{"no route at all", answer{addrs: good6}, answer{addrs: good4}, map[string]fate{good6: {0, errFar}, good4: {0, errFar}}, errFar, 0},
		{"refused, then dead", answer{err: errMissing}, answer{addrs: good4 + " " + dead(1)}, map[string]fate{good4: {0, errRefused}}, errRefused, 10 * time.Second},
		{"dead, then refused", answer{err: errMissing}, answer{addrs: dead(1) + good4}, map[string]fate{good4: {0, errRefused}}, context.DeadlineExceeded, 10 * time.Second},
		{"refused, and no answer about IPv6", answer{after: never}, answer{addrs: good4}, map[string]fate{good4: {0, errRefused}}, errRefused, 10 * time.Second},
		{"given up, and the others reset", answer{err: errMissing}, answer{addrs: dead(1) + good4 + " " + other4 + " 198.51.100.3"},
			map[string]fate{good4: {2 * time.Second, errReset}, other4: {2 * time.Second, errReset}, "198.51.100.3": {2 * time.Second, errReset}}, context.Canceled, 2750 * ms},
		{"no such name", answer{err: errMissing}, answer{err: errMissing}, nil, errMissing, 0},
		{"SERVFAIL for IPv4, nothing for IPv6", answer{err: errMissing}, answer{err: errServfail}, nil, errMissing, 0},
		{"SERVFAIL for IPv6, nothing for IPv4", answer{err: errServfail}, answer{err: errMissing}, nil, errMissing, 0},
		{"SERVFAIL for both", answer{err: errServfail}, answer{err: errServfail}, nil, errServfail, 0},
		{"nothing for IPv4, no answer about IPv6", answer{after: never}, answer{err: errMissing}, nil, errMissing, 10 * time.Second},
		{"no answer at all", answer{after: never}, answer{after: never}, nil, context.DeadlineExceeded, 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := &track{v6: row.v6, v4: row.v4, fates: row.fates}
				_, took, err := k.run(t.Context(), "tcp")
				if !errors.Is(err, row.want) || took != row.took {
					t.Errorf("%v after %s, want %v after %s", err, took, row.want, row.took)
				}
				if row.want == context.Canceled && classify.Error(classify.PhaseConnect, err) != classify.ConnectTimeout { //nolint:errorlint // the very one
					t.Errorf("the class of %v is not CONNECT_TIMEOUT", err)
				}
				if k.open.Load() != 0 {
					t.Errorf("%d sockets are open", k.open.Load())
				}
			})
		})
	}
}

// TestRaceCancelled checks that nothing goes on when a race was cancelled. A bubble ends only with its goroutines.
func TestRaceCancelled(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		v6, v4 answer
		after  time.Duration
		tries  int
	}{
		{"in the lookups", answer{after: never}, answer{after: never}, time.Second, 0},
		{"with one family known", answer{after: never}, answer{addrs: dead(1)}, 40 * time.Millisecond, 0},
		{"with three sockets", answer{err: errMissing}, answer{addrs: dead(9)}, 600 * time.Millisecond, 3},
		{"while the last three are waited for", answer{after: never}, answer{addrs: dead(4)}, 5 * time.Second, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(row.after, cancel)
				k := &track{v6: row.v6, v4: row.v4}
				_, took, err := k.run(ctx, "tcp")
				if !errors.Is(err, context.Canceled) || took != row.after || len(k.tried) != row.tries {
					t.Errorf("%v after %s, tried %q, want it cancelled after %s and %d addresses", err, took, k.tried, row.after, row.tries)
				}
				if k.open.Load() != 0 {
					t.Errorf("%d sockets are open", k.open.Load())
				}
			})
		})
	}
}
