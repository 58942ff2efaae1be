// Package budget counts the bytes that a service holds for its callers.
//
// A [Budget] has a limit and decides how much of it each caller may use. A [Lease] is
// what one call, fetch or message has been granted. Users call [Lease.Grow] before they
// hold more, and fail if it refuses. A grant is never taken back. Nothing waits here except for [Lease.Await].
//
// [Budget.GrowIdle] charges what is held for no caller and can be freed at any time. A grant frees
// it first, if there is no room otherwise.
//
// The package measures nothing: it adds up what its users report.
package budget

import (
	"sync"
	"time"
)

// Kind is what bytes are held for.
type Kind uint8

// The kinds.
const (
	Fetch     Kind = iota // Fetches in flight: goroutines, a connection, one chunk.
	Request               // Requests that wait or are being run.
	Receiving             // Requests and response heads that are not complete.
	Head                  // Response heads and hops.
	Body                  // Bodies for the outcome.
	HoldBack              // Bodies buffered for a retry.
	Decoder               // Windows of content codings.
	Answer                // Messages to callers, until they are written.
	Idle                  // Idle connections, which are held for no caller.
	kinds
)

var names = [kinds]string{"fetch", "request", "receiving", "head", "body", "hold_back", "decoder", "answer", "idle"}

// String returns the name in lower_snake_case, as in metrics.
func (k Kind) String() string { return names[k] }

// optionalShare is the divisor of the free part that gives the limit of one optional
// grant: a few large holders must not leave the others with nothing.
const optionalShare = 16

// Budget is a number of bytes that callers share. It is safe for concurrent use.
type Budget struct {
	mu      sync.Mutex // innermost: no function is called while it is held
	limit   int64
	free    func(n int64) // see [Budget.FreeIdleWith]
	used    int64         // without what is idle
	kinds   [kinds]int64
	callers map[string]*account
	active  int // callers with bytes
}

// account is what one caller holds. It exists while the caller has an open lease.
type account struct {
	caller string
	used   int64
	most   int64 // see [Lease.LimitCaller]
	leases int

	fetches int64         // bytes of kind Fetch
	holders int           // leases that hold back and are not in [Lease.Await]
	freed   chan struct{} // closed when the caller releases something; nil: nothing waits for that
	waiting int           // leases in Await
	woken   time.Time     // when freed was closed last
	waking  bool          // it will be closed soon
}

// wakePause is the pause after a wake-up for each lease that waits. To wake one takes about a microsecond, so
// what thousands wait for costs a tenth of a processor at most, however often something is released.
const wakePause = 10 * time.Microsecond

// New returns a budget of limit bytes, which must be positive.
func New(limit int64) *Budget {
	return &Budget{limit: limit, callers: make(map[string]*account)}
}

// Limit returns the size of the budget in bytes.
func (b *Budget) Limit() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// Resize adds n bytes to the size of the budget. If n is negative, more may be held than fits; then nothing
// is granted until enough is released.
func (b *Budget) Resize(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit += n
}

// Usage is the number of bytes held, by [Kind].
type Usage [kinds]int64

// Each calls f for every kind.
func (u Usage) Each(f func(k Kind, bytes int64)) {
	for k, n := range u {
		f(Kind(k), n)
	}
}

// Total returns the bytes of all kinds.
func (u Usage) Total() (n int64) {
	for _, bytes := range u {
		n += bytes
	}
	return n
}

// Usage returns the bytes that are held now.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kinds
}

// fitsLocked reports whether the caller may hold n more bytes, if what is idle is freed. A single caller may use three
// quarters of the budget. Once more than half is used, a caller may not exceed its share,
// the budget divided by the number of callers that hold something. The last eighth is for
// callers that hold little, so that a few large callers leave it to new ones.
func (b *Budget) fitsLocked(a *account, n int64) bool {
	used, own := b.used+n, a.used+n
	return used <= b.limit && own <= b.mostLocked(a) &&
		(used <= b.limit/2 || own <= b.shareLocked(a)) &&
		(used <= b.limit/8*7 || own <= b.limit/littlePart)
}

// mostLocked returns how many bytes the caller may hold at most.
func (b *Budget) mostLocked(a *account) int64 {
	most := b.limit / 4 * 3
	if a.most > 0 {
		most = min(most, a.most)
	}
	return most
}

// grantLocked reports whether the lease may hold n more bytes. It frees idle memory for them if it has
// to, and does not hold the lock meanwhile.
func (l *Lease) grantLocked(n int64) bool {
	b := l.budget
	if l.account == nil || !b.fitsLocked(l.account, n) {
		return false
	}
	for range freeTries {
		short := b.shortLocked(n)
		if short <= 0 {
			return true
		}
		if b.free == nil {
			return false
		}
		free := b.free
		b.mu.Unlock()
		free(short)
		b.mu.Lock()
		if l.account == nil || !b.fitsLocked(l.account, n) {
			return false
		}
	}
	return b.shortLocked(n) <= 0
}

// freeTries is how often idle memory is freed for one grant: others may take what was freed.
const freeTries = 4

// shortLocked returns how many idle bytes are in the way of n more.
func (b *Budget) shortLocked(n int64) int64 { return b.used + n + b.kinds[Idle] - b.limit }

// idlePart is the divisor of the budget that gives the limit of what is idle.
const idlePart = 8

// GrowIdle charges n bytes that are held for no caller, and reports whether they were granted: there is
// room, and all of them together have at most an eighth of the budget. A nil Budget grants everything.
func (b *Budget) GrowIdle(n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kinds[Idle]+n > b.limit/idlePart || b.shortLocked(n) > 0 {
		return false
	}
	b.kinds[Idle] += n
	return true
}

// ShrinkIdle releases n bytes of what is idle.
func (b *Budget) ShrinkIdle(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds[Idle] -= n
}

// FreeIdleWith sets the function that frees at least n bytes of what is idle, if there are as many. It is
// called by whoever grows a lease, must not wait, and calls ShrinkIdle. It must be set before the
// budget is used.
func (b *Budget) FreeIdleWith(free func(n int64)) {
	if b != nil {
		b.free = free
	}
}

// littlePart is the divisor of the budget below which a caller holds little.
const littlePart = 64

func (b *Budget) shareLocked(a *account) int64 {
	active := b.active
	if a.used == 0 {
		active++
	}
	return b.limit / int64(active)
}

// availableLocked returns the largest n that fits.
func (b *Budget) availableLocked(a *account) int64 {
	most := min(b.limit-b.used-b.kinds[Idle], b.mostLocked(a)-a.used)
	most = min(most, max(b.limit/2-b.used, b.shareLocked(a)-a.used))
	return max(min(most, max(b.limit/8*7-b.used, b.limit/littlePart-a.used)), 0)
}

func (b *Budget) addLocked(a *account, n int64) {
	if n == 0 {
		return
	}
	if a.used == 0 {
		b.active++
	}
	b.used += n
	if a.used += n; a.used == 0 {
		b.active--
	}
	if n < 0 {
		b.wakeLocked(a)
	}
}

// wakeLocked lets those that wait for the caller try again, at once or after a pause.
func (b *Budget) wakeLocked(a *account) {
	if a.freed == nil || a.waking {
		return
	}
	now := time.Now()
	if left := a.woken.Add(time.Duration(a.waiting) * wakePause).Sub(now); left > 0 {
		a.waking = true
		time.AfterFunc(left, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			a.waking = false
			a.openLocked(time.Now())
		})
		return
	}
	a.openLocked(now)
}

func (a *account) openLocked(now time.Time) {
	if a.freed != nil {
		close(a.freed)
		a.freed, a.woken = nil, now
	}
}
