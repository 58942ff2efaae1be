package budget

import (
	"context"
	"errors"
)

// ErrRefused is returned by users of a lease that needed a charge which was refused.
var ErrRefused = errors.New("the memory budget is exhausted")

// Lease is what one holder has been granted, by kind. A nil *Lease has no budget: it
// grants everything and counts nothing.
//
// Its methods are safe for concurrent use. It must be closed, and grants nothing after
// that.
type Lease struct {
	budget  *Budget
	account *account // nil: closed
	held    [kinds]int64
	holds   bool // has a hold-back, or had one that became something else
	waits   bool // in Await
}

// Lease returns a new lease of the caller that holds nothing.
func (b *Budget) Lease(caller string) *Lease {
	l := new(Lease)
	b.Open(l, caller)
	return l
}

// Open makes l, which is zero, a lease of the caller that holds nothing.
func (b *Budget) Open(l *Lease, caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.callers[caller]
	if a == nil {
		a = &account{caller: caller}
		b.callers[caller] = a
	}
	a.leases++
	l.budget, l.account = b, a
}

// Caller returns the caller of the lease, or "" if it is nil or closed.
func (l *Lease) Caller() string {
	if l == nil {
		return ""
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil {
		return ""
	}
	return l.account.caller
}

// LimitCaller limits what the caller of the lease may hold to n bytes, until it is called again or the caller's last
// lease is closed. Zero means no limit but three quarters of the budget. What it holds already stays granted.
func (l *Lease) LimitCaller(n int64) {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account != nil {
		l.account.most = n
	}
}

// OfCaller returns how many bytes the caller of the lease holds.
func (l *Lease) OfCaller() int64 {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil {
		return 0
	}
	return l.account.used
}

// ExceedsLimit reports whether n more bytes would exceed the limit that [Lease.LimitCaller] has set.
func (l *Lease) ExceedsLimit(n int64) bool {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	return l.account != nil && l.account.most > 0 && l.account.used+n > l.account.most
}

// Grow charges n more bytes, all or none, and reports whether they were granted.
func (l *Lease) Grow(k Kind, n int64) bool {
	if l == nil || n <= 0 {
		return true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if !l.grantLocked(n) {
		return false
	}
	l.addLocked(k, n)
	return true
}

// GrowUpTo charges up to n more bytes for something that also works with less. It returns
// how many were granted: at most a sixteenth of what is left. As many bytes as the caller's fetches in flight
// are charged do not count, so that each of them can still send a chunk.
func (l *Lease) GrowUpTo(k Kind, n int64) int64 {
	if l == nil {
		return n
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil {
		return 0
	}
	n = max(min(n, (l.budget.availableLocked(l.account)-l.account.fetches)/optionalShare), 0)
	l.addLocked(k, n)
	return n
}

// Shrink releases n bytes, or as many as are held.
func (l *Lease) Shrink(k Kind, n int64) {
	if l == nil {
		return
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account != nil {
		l.addLocked(k, -min(n, l.held[k]))
		l.endHoldLocked()
	}
}

// Held returns how many bytes of a kind are held.
func (l *Lease) Held(k Kind) int64 {
	if l == nil {
		return 0
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	return l.held[k]
}

// Total returns how many bytes of all kinds are held.
func (l *Lease) Total() int64 {
	if l == nil {
		return 0
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	return Usage(l.held).Total()
}

// Become changes the lease to n bytes of kind k, and nothing else. It reports whether that
// was granted, if it needs more than before. If not, l is unchanged.
func (l *Lease) Become(k Kind, n int64) bool {
	if l == nil {
		return true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil {
		return false
	}
	for granted := int64(0); ; { // the lease may shrink while idle memory is freed
		more := n - Usage(l.held).Total()
		if more <= granted {
			break
		}
		if !l.grantLocked(more) {
			return false
		}
		granted = more
	}
	held := l.held
	for kind, bytes := range held {
		l.kindLocked(Kind(kind), -bytes)
	}
	l.kindLocked(k, n)
	l.budget.addLocked(l.account, n-Usage(held).Total())
	return true
}

// Pay moves n bytes from kind from of l to kind k of another lease of the same caller. It
// reports whether l held as many.
func (l *Lease) Pay(to *Lease, from, k Kind, n int64) bool {
	if l == nil {
		return true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil || to.account != l.account || l.held[from] < n {
		return false
	}
	l.kindLocked(from, -n)
	to.kindLocked(k, n)
	return true
}

// PayUpTo moves up to n bytes from kind from of l to kind k of another lease of the same caller, and charges the
// rest of n to that. It reports whether this was granted.
func (l *Lease) PayUpTo(to *Lease, from, k Kind, n int64) bool {
	if l == nil {
		return true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil || to.account != l.account || n > l.held[from] && !to.grantLocked(n-l.held[from]) {
		return false
	}
	paid := min(l.held[from], n)
	l.kindLocked(from, -paid)
	to.kindLocked(k, paid)
	to.addLocked(k, n-paid)
	return true
}

// Await repeats a charge that was refused until it is granted. Between two tries it waits for the caller to
// release something. It returns false if there is nothing to wait for: no other lease of the caller holds back,
// or all that do wait as well. A lease holds back from the grant until [Lease.Shrink] has released all of it, or until it is
// closed, even if it has paid for something else with that. Await also returns false when the context ends. It asks for
// the context only if it has to wait.
func (l *Lease) Await(ctx func() context.Context, charge func() bool) bool {
	if l == nil {
		return false
	}
	defer l.setWaits(false)
	for {
		freed := l.setWaits(true) // before the charge, so that nothing that is released is missed
		if charge() {
			return true
		}
		if freed == nil {
			return false
		}
		select {
		case <-freed:
		case <-ctx().Done():
			return false
		}
	}
}

// setWaits starts or ends a wait. If there is something to wait for, it returns a channel that is closed when
// the caller releases something.
func (l *Lease) setWaits(waits bool) <-chan struct{} {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	a := l.account
	if a == nil {
		return nil
	}
	if l.waits != waits {
		by := 1
		if !waits {
			by = -1
		}
		a.waiting += by
		if l.holds {
			a.holders -= by
		}
	}
	if l.waits = waits; !waits || a.holders == 0 {
		return nil
	}
	if a.freed == nil {
		a.freed = make(chan struct{})
	}
	return a.freed
}

// Another returns a new lease of the same caller that holds nothing. It must be closed too.
func (l *Lease) Another() *Lease {
	if l == nil {
		return nil
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil { // closed
		return &Lease{budget: l.budget}
	}
	l.account.leases++
	return &Lease{budget: l.budget, account: l.account}
}

// OpenWith makes other, which is zero, a lease of the same caller. It reports whether n bytes were granted; otherwise
// other holds nothing. It must be closed too.
func (l *Lease) OpenWith(other *Lease, k Kind, n int64) bool {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	other.budget = l.budget
	granted := l.grantLocked(n)
	if l.account == nil { // closed
		return false
	}
	l.account.leases++
	if other.account = l.account; granted {
		other.addLocked(k, n)
	}
	return granted
}

// Close releases everything. It may be called again.
func (l *Lease) Close() {
	if l == nil || l.budget == nil {
		return
	}
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	a := l.account
	if a == nil {
		return
	}
	for k, n := range l.held {
		if n != 0 {
			l.addLocked(Kind(k), -n)
		}
	}
	l.endHoldLocked()
	if l.waits {
		a.waiting--
	}
	l.account = nil
	if a.leases--; a.leases == 0 {
		delete(b.callers, a.caller)
	}
}

func (l *Lease) addLocked(k Kind, n int64) {
	l.kindLocked(k, n)
	l.budget.addLocked(l.account, n)
}

func (l *Lease) kindLocked(k Kind, n int64) {
	l.held[k] += n
	l.budget.kinds[k] += n
	switch {
	case k == Fetch:
		l.account.fetches += n
	case k == HoldBack && n > 0 && !l.holds:
		if l.holds = true; !l.waits {
			l.account.holders++
		}
	}
}

// endHoldLocked records that the lease holds nothing back, if that is so.
func (l *Lease) endHoldLocked() {
	if !l.holds || l.held[HoldBack] > 0 {
		return
	}
	if l.holds = false; !l.waits {
		l.account.holders--
	}
	l.budget.wakeLocked(l.account)
}
