package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		live uint64
		want int
	}{
		{"nothing yet", 0, 1500},
		{"2 MiB", 2 << 20, 1500},
		{"4 MiB: to 64", 4 << 20, 1500},
		{"8 MiB: to 64", 8 << 20, 700},
		{"20 MiB: to 60", 20 << 20, 200},
		{"32 MiB: to 64", 32 << 20, 100},
		{"64 MiB: Go's own rule", 64 << 20, 100},
		{"1 GiB: Go's own rule", 1 << 30, 100},
	} {
		if got := percentFor(row.live); got != row.want {
			t.Errorf("%s: percentFor(%d) = %d, want %d", row.name, row.live, got, row.want)
		}
	}
}

// TestHold: the percentage follows what lives, up and down.
func TestHold(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	Hold()
	wantAfterCollection(t, func(percent int) bool { return percent > 500 }, "more than 500 with little alive")
	big := make([]byte, 100<<20)
	wantAfterCollection(t, func(percent int) bool { return percent == 100 }, "100 with 100 MiB alive")
	runtime.KeepAlive(big)
	wantAfterCollection(t, func(percent int) bool { return percent > 500 }, "more than 500 once they are gone")
}

// TestHoldLeavesGOGC alone where the operator has set it.
func TestHoldLeavesGOGC(t *testing.T) {
	t.Setenv("GOGC", "150")
	defer debug.SetGCPercent(debug.SetGCPercent(150))
	Hold()
	if got := percent(); got != 150 {
		t.Errorf("the percentage is %d, want the operator's 150", got)
	}
}

func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

func wantAfterCollection(t *testing.T, good func(int) bool, want string) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		if runtime.GC(); good(percent()) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the percentage is %d, want %s", percent(), want)
		}
	}
}
