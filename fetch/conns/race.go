package conns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
)

// The limits of a race (RFC 8305).
const (
	// nextAddress is how long an address has before the next one is tried as well.
	nextAddress = 250 * time.Millisecond
	// lateFamily is how long IPv4 addresses wait for IPv6 addresses, which are tried first.
	lateFamily = 50 * time.Millisecond
	// maxSockets is how many addresses are tried at once.
	maxSockets = 3
)

// Resolver looks up names. A [net.Resolver] is one.
type Resolver interface {
	// LookupNetIP returns the addresses of a name. The network is "ip", "ip4" or "ip6".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// race connects to one of the addresses of a name. It asks for the addresses of each family by itself, and
// takes the families in turn. If an address fails, the next one is tried at once.
type race struct {
	resolver Resolver
	host     string
	connect  func(ctx context.Context, addr netip.Addr) (net.Conn, error)

	families [2]family // IPv6 comes first
	turn     int       // the family of the next address
	asking   int       // lookups in flight
	open     int       // tries that have not ended
	tries    []try     // in the order in which they were started
	due      time.Time // when the next address may be tried
	found    chan lookedUp
	ended    chan result
}

// family is what is known of the addresses of one family.
type family struct {
	index  int // in the race
	addrs  []netip.Addr
	tried  int // the first ones of addrs
	asking bool
	err    error
}

// lookedUp is the result of a lookup.
type lookedUp struct {
	family *family
	addrs  []netip.Addr
	err    error
}

// try is an address that is tried.
type try struct {
	order  int                // in a list of all addresses in which the families alternate
	cancel context.CancelFunc // nil: it has no goroutine
	ended  bool
	late   bool // it was given up for the next address
	err    error
}

// result is the end of a try.
type result struct {
	try  int // index in the race
	conn net.Conn
	err  error
}

// run looks up the addresses of a network, "tcp", "tcp4" or "tcp6", and connects to one of them. Every
// lookup and every other try has been cancelled when it returns.
func (r *race) run(ctx context.Context, network string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer r.drain()
	defer cancel()
	r.ask(ctx, network)
	for {
		var due <-chan time.Time
		switch wait := time.Until(r.due); {
		case r.next() == nil || ctx.Err() != nil:
			if r.asking+r.open == 0 {
				return nil, r.failure()
			}
		case wait > 0:
			due = time.After(wait)
		case r.open == maxSockets:
			r.giveUpOldest()
		default:
			if conn := r.start(ctx); conn != nil {
				return conn, nil
			}
			continue
		}
		select {
		case l := <-r.found:
			r.take(l)
		case e := <-r.ended:
			r.open--
			if conn := r.end(e); conn != nil {
				return conn, nil
			}
		case <-due:
		}
	}
}

// drain waits for the tries that have not ended, and closes their connections.
func (r *race) drain() {
	for ; r.open > 0; r.open-- {
		if e := <-r.ended; e.err == nil {
			_ = e.conn.Close()
		}
	}
}

// ask starts the lookups.
func (r *race) ask(ctx context.Context, network string) {
	r.found = make(chan lookedUp, len(r.families))
	for i, own := range [...]string{"ip6", "ip4"} {
		f := &r.families[i]
		if f.index = i; network != "tcp" && network[3:] != own[2:] {
			continue
		}
		f.asking = true
		r.asking++
		go func() {
			addrs, err := r.resolver.LookupNetIP(ctx, own, r.host)
			r.found <- lookedUp{f, addrs, err}
		}()
	}
}

// take keeps the addresses of a family. IPv4 addresses wait a moment if those of IPv6 are not known.
func (r *race) take(l lookedUp) {
	r.asking--
	l.family.asking, l.family.addrs, l.family.err = false, l.addrs, l.err
	if len(r.tries) > 0 {
		return
	}
	r.due = time.Time{}
	if r.families[0].asking {
		r.due = time.Now().Add(lateFamily)
	}
}

// next returns the family of the next address: the one whose turn it is, or the other one. It returns nil if there
// is no further address.
func (r *race) next() *family {
	for _, i := range [...]int{r.turn, 1 - r.turn} {
		if f := &r.families[i]; f.tried < len(f.addrs) {
			return f
		}
	}
	return nil
}

// start tries the next address. If it is the only one left, start waits for its end, and returns the connection.
func (r *race) start(ctx context.Context) net.Conn {
	f, i := r.next(), len(r.tries)
	addr, t := f.addrs[f.tried], try{order: 2*f.tried + f.index}
	f.tried++
	r.turn = 1 - f.index
	if r.asking+r.open == 0 && r.next() == nil {
		r.tries = append(r.tries, t)
		conn, err := r.connect(ctx, addr)
		return r.end(result{i, conn, err})
	}
	if r.ended == nil {
		r.ended = make(chan result, maxSockets)
	}
	r.due = time.Now().Add(nextAddress)
	ctx, t.cancel = context.WithCancel(ctx)
	r.tries = append(r.tries, t)
	r.open++
	go func() {
		conn, err := r.connect(ctx, addr)
		r.ended <- result{i, conn, err}
	}()
	return nil
}

// end records that a try has ended, and returns its connection. If it has failed, the next address is tried at once.
func (r *race) end(e result) net.Conn {
	t := &r.tries[e.try]
	t.ended, t.err = true, e.err
	if t.cancel != nil {
		t.cancel()
	}
	if e.err == nil {
		return e.conn
	}
	if t.late {
		t.err = fmt.Errorf("%w: %w", fault.New(classify.ConnectTimeout, classify.PhaseConnect, ""), e.err)
	}
	r.due = time.Time{}
	return nil
}

// giveUpOldest ends the try that was started first of those that have not ended.
func (r *race) giveUpOldest() {
	for i := range r.tries {
		if t := &r.tries[i]; !t.ended {
			t.late = true
			t.cancel()
			return
		}
	}
}

// failure returns the error of the first address in order, or that of the lookup if there was none.
func (r *race) failure() error {
	var first *try
	for i := range r.tries {
		if t := &r.tries[i]; first == nil || t.isBefore(first) {
			first = t
		}
	}
	if first != nil {
		return first.err
	}
	return r.lookupError()
}

// lookupError returns the error of a name without addresses. A family that has none decides, whatever became of the
// lookup of the other one: so a name that is hidden, with addresses of one family, is like one that does not exist.
func (r *race) lookupError() error {
	var err error
	for i := range r.families {
		own := r.families[i].err
		if _, found := errors.AsType[*net.AddrError](own); found { // an address, but not one of this family
			return own
		}
		if err == nil || isNotFound(own) {
			err = own
		}
	}
	if err == nil {
		return &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return err
}

// isBefore reports whether an address comes before another one. Addresses to which this machine has no route come
// last (RFC 6724 section 6, rule 1).
func (t *try) isBefore(other *try) bool {
	if far := hasNoRoute(t.err); far != hasNoRoute(other.err) {
		return !far
	}
	return t.order < other.order
}

func hasNoRoute(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

func isNotFound(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}
