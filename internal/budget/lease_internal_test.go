package budget

import "testing"

// TestCallersAreForgotten checks that a caller is listed until its last lease is closed.
func TestCallersAreForgotten(t *testing.T) {
	t.Parallel()
	b := New(800)
	first, second := b.Lease("a"), b.Lease("a")
	first.Close()
	if len(b.callers) != 1 {
		t.Errorf("%d callers with a lease, want 1", len(b.callers))
	}
	second.Close()
	if len(b.callers) != 0 {
		t.Errorf("%d callers after the last lease, want none", len(b.callers))
	}
}
