package budget

import "errors"

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
}

// Lease returns a new lease of the caller that holds nothing.
func (b *Budget) Lease(caller string) *Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.callers[caller]
	if a == nil {
		a = &account{caller: caller}
		b.callers[caller] = a
	}
	a.leases++
	return &Lease{budget: b, account: a}
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
// how many were granted: at most a sixteenth of what is left.
func (l *Lease) GrowUpTo(k Kind, n int64) int64 {
	if l == nil {
		return n
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account == nil {
		return 0
	}
	n = max(min(n, l.budget.availableLocked(l.account)/optionalShare), 0)
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

// AnotherWith returns a new lease of the same caller that holds n bytes, and whether they were granted.
// It must be closed too.
func (l *Lease) AnotherWith(k Kind, n int64) (*Lease, bool) {
	if l == nil {
		return nil, true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if !l.grantLocked(n) {
		return nil, false
	}
	l.account.leases++
	other := &Lease{budget: l.budget, account: l.account}
	other.addLocked(k, n)
	return other, true
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
}
