package work_test

import (
	"errors"
	"testing"

	"fetchd/frontier/work"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	var pauses []int
	m := &work.Meter{Limit: 5 * work.Quantum, Pause: func(spent int) error { pauses = append(pauses, spent); return nil }}
	for _, n := range []int{1, work.Quantum - 2, 1, 2*work.Quantum + 5, work.Quantum} {
		if err := m.Spend(n); err != nil {
			t.Fatalf("Spend(%d): %v", n, err)
		}
	}
	if len(pauses) != 3 || pauses[0] != work.Quantum || pauses[1] != 2*work.Quantum+5 || pauses[2] != work.Quantum {
		t.Errorf("pauses after %d", pauses)
	}
	if err := m.Spend(work.Quantum - 5); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	for range 2 {
		if err := m.Spend(1); !errors.Is(err, work.ErrLimit) {
			t.Errorf("beyond the limit: %v", err)
		}
	}
	if got := m.Take(); got != work.Quantum-3 {
		t.Errorf("Take = %d, want what was spent since the last pause", got)
	}
	if got := m.Spent(); got != 5*work.Quantum+2 {
		t.Errorf("spent %d", got)
	}
}

func TestMeterPauseEnds(t *testing.T) {
	t.Parallel()
	ended := errors.New("ended")
	m := &work.Meter{Pause: func(int) error { return ended }}
	if err := m.Spend(work.Quantum - 1); err != nil {
		t.Errorf("before a pause: %v", err)
	}
	if err := m.Spend(1); !errors.Is(err, ended) {
		t.Errorf("Spend returned %v, want the error of Pause", err)
	}
}

// TestNoMeter checks that a meter is optional.
func TestNoMeter(t *testing.T) {
	t.Parallel()
	var m *work.Meter
	if err := m.Spend(1 << 40); err != nil || m.Spent() != 0 {
		t.Errorf("Spend: %v, spent %d", err, m.Spent())
	}
}
