// Package work counts what the documents of strangers make a program compute.
//
// The unit is a byte that is read or written, which takes a few nanoseconds. Each step of a search
// adds what it costs to a [Meter] before or after it runs, so the count does not depend on the speed
// of the machine.
package work

import "errors"

// ErrLimit means that a document needs more work than its limit.
var ErrLimit = errors.New("it needs more work than the limit")

// Quantum is how much is counted between two calls of Pause: less than a millisecond of a processor,
// if no single step costs more.
const Quantum = 128 << 10

// Meter counts the work for one document. A nil Meter counts nothing. It is not safe for concurrent use.
type Meter struct {
	// Limit is the maximum; zero means that there is none.
	Limit int
	// Pause is called after each [Quantum] with the work since the last call, unless it is nil. It may
	// block, so that other documents have their turn. Its error ends the search.
	Pause func(spent int) error

	spent int
	taken int // of spent
}

// Spend adds n. The error is [ErrLimit] once there is more than the limit, or that of Pause.
func (m *Meter) Spend(n int) error {
	if m == nil {
		return nil
	}
	m.spent += n
	if m.Limit > 0 && m.spent > m.Limit {
		return ErrLimit
	}
	if m.Pause == nil || m.spent-m.taken < Quantum {
		return nil
	}
	return m.Pause(m.Take())
}

// Take returns the work since the last call of Take or of Pause.
func (m *Meter) Take() int {
	since := m.spent - m.taken
	m.taken = m.spent
	return since
}

// Spent returns the sum.
func (m *Meter) Spent() int {
	if m == nil {
		return 0
	}
	return m.spent
}
