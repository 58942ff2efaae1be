package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		live, roots uint64
		want        int
	}{
		{"nothing yet", 0, 1 << 20, 1500},
		{"2 MiB", 2 << 20, 0, 1500},
		{"4 MiB: to 64", 4 << 20, 0, 1500},
		{"8 MiB: to 64", 8 << 20, 0, 700},
		{"20 MiB: to 60", 20 << 20, 0, 200},
		{"32 MiB: to 64", 32 << 20, 0, 100},
		{"64 MiB: Go's own rule", 64 << 20, 0, 100},
		{"1 GiB: Go's own rule", 1 << 30, 0, 100},
		{"4 MiB, and 4 of stacks: to 64", 4 << 20, 4 << 20, 750},
		{"8 MiB, and 20 of stacks: to 64", 8 << 20, 20 << 20, 200},
		{"4 MiB, and 80 of stacks: Go's own rule", 4 << 20, 80 << 20, 100},
	} {
		if got := percentFor(row.live, row.roots); got != row.want {
			t.Errorf("%s: percentFor(%d, %d) = %d, want %d", row.name, row.live, row.roots, got, row.want)
		}
	}
}

// TestHoldHeap checks that GOGC follows the live heap, up and down.
func TestHoldHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	HoldHeap()
	wantAfterCollection(t, func(percent int) bool { return percent > 500 }, "more than 500 with little alive")
	big := make([]byte, 100<<20)
	wantAfterCollection(t, func(percent int) bool { return percent == 100 }, "100 with 100 MiB alive")
	runtime.KeepAlive(big)
	wantAfterCollection(t, func(percent int) bool { return percent > 500 }, "more than 500 once they are gone")
}

// TestHoldWithDeepStacks checks that deep stacks, which GOGC scales too, do not let a small heap
// grow to many times 64 MiB.
func TestHoldWithDeepStacks(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	release := make(chan struct{})
	var deep, all sync.WaitGroup
	for range 1000 {
		deep.Add(1)
		all.Go(func() { descend(64, func() { deep.Done(); <-release }) })
	}
	deep.Wait()
	defer all.Wait()
	defer close(release)
	HoldHeap()
	wantAfterCollection(t, func(int) bool {
		return read("/gc/scan/stack:bytes") > 32<<20 && read("/gc/heap/goal:bytes") < 2*minHeap
	},
		"less, for a goal of twice 64 MiB at most with 32 MiB of stacks")
}

// descend calls then on a stack of n KiB.
func descend(n int, then func()) byte {
	var frame [1 << 10]byte
	if n == 0 {
		then()
		return frame[0]
	}
	frame[n] = descend(n-1, then)
	return frame[n/2]
}

// TestHoldLeavesGOGC checks that HoldHeap does not change a GOGC set by the operator.
func TestHoldLeavesGOGC(t *testing.T) {
	t.Setenv("GOGC", "150")
	defer debug.SetGCPercent(debug.SetGCPercent(150))
	HoldHeap()
	if got := percent(); got != 150 {
		t.Errorf("the percentage is %d, want the operator's 150", got)
	}
}

func TestBurstOver(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, row := range []struct {
		name                                  string
		allocated, live, objects, free, since uint64 // since: the last look
		want                                  bool
	}{
		{"64 MiB to collect, and nothing happens", 500 * mib, 10 * mib, 74 * mib, 0, 0, true},
		{"little happens", 500 * mib, 10 * mib, 74 * mib, 0, mib - 1, true},
		{"a sixteenth of the garbage is allocated", 500 * mib, 10 * mib, 74 * mib, 0, 4*mib - 1, true},
		{"much happens", 500 * mib, 10 * mib, 74 * mib, 0, 4 * mib, false},
		{"the first look", 500 * mib, 10 * mib, 74 * mib, 0, 500 * mib, false},
		{"16 MiB to collect", 500 * mib, 10 * mib, 26 * mib, 0, 0, true},
		{"less to collect", 500 * mib, 10 * mib, 26*mib - 1, 0, 0, false},
		{"a quarter of what lives", 500 * mib, 100 * mib, 125 * mib, 0, 0, true},
		{"less than a quarter of what lives", 500 * mib, 100 * mib, 125*mib - 1, 0, 0, false},
		{"it has just run", 500 * mib, 100 * mib, 100 * mib, 0, 0, false},
		{"64 MiB free, and nothing to collect", 500 * mib, 10 * mib, 10 * mib, 64 * mib, 0, true},
		{"64 MiB free, and much happens", 500 * mib, 10 * mib, 10 * mib, 64 * mib, 4 * mib, false},
		{"less than 16 MiB free", 500 * mib, 10 * mib, 10 * mib, 16*mib - 1, 0, false},
		{"objects are counted later than what lives", 500 * mib, 100 * mib, 99 * mib, 0, 0, false},
	} {
		last, now := heap{allocated: row.allocated - row.since}, heap{row.allocated, row.live, row.objects, row.free}
		if got := burstOver(&last, &now); got != row.want {
			t.Errorf("%s: burstOver(%+v, %+v) = %t, want %t", row.name, last, now, got, row.want)
		}
	}
}

func TestBygone(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, row := range []struct {
		name                              string
		allocated, since, collected, live uint64
		want                              bool
	}{
		{"a burst since the last time, and nothing happens", 500 * mib, 0, 100 * mib, 90 * mib, true},
		{"a burst, and something happens", 500 * mib, mib, 100 * mib, 90 * mib, false},
		{"little since the last time", 115 * mib, 0, 100 * mib, 10 * mib, false},
		{"less than a sixteenth of what lives since the last time", 120 * mib, 0, 100 * mib, 400 * mib, false},
	} {
		last, now := heap{allocated: row.allocated - row.since}, heap{allocated: row.allocated, live: row.live, objects: row.live}
		if got := bygone(&last, &now, row.collected); got != row.want {
			t.Errorf("%s: bygone = %t, want %t", row.name, got, row.want)
		}
	}
}

// TestRest checks that a burst causes one collection and that its memory is returned to the system.
func TestRest(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1500))
	debug.FreeOSMemory()
	r := &rest{last: heapNow(), collected: heapNow().allocated}
	before, released := heapNow(), read("/memory/classes/heap/released:bytes")
	for range 48 {
		sink = make([]byte, 1<<20)
	}
	sink = nil
	if r.collect() {
		t.Error("it collects while the burst goes on")
	}
	// A look that another test's HoldHeap has begun may come first, where this one is held up.
	if !r.collect() && heapNow().objects >= before.objects+garbage {
		t.Fatalf("it does not collect after a burst: %+v, before it %+v", heapNow(), before)
	}
	if now := heapNow(); now.objects > before.objects+4<<20 {
		t.Errorf("%d bytes of objects after the collection, want about the %d from before", now.objects, before.objects)
	}
	// The runtime takes pages for itself meanwhile, for a stack for example.
	if free, now := read("/memory/classes/heap/free:bytes"), read("/memory/classes/heap/released:bytes"); free > 4<<20 || now+4<<20 < released {
		t.Errorf("%d bytes are free and not given back, %d are, before the burst %d", free, now, released)
	}
	if !r.collect() {
		t.Error("it does not collect what the first collection could not")
	}
	if r.collect() {
		t.Error("it collects again where nothing has happened")
	}
}

// TestRestReleased checks that memory that becomes garbage without a new allocation is collected
// after some quiet looks.
func TestRestReleased(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1500))
	held := make([]byte, garbage)
	debug.FreeOSMemory()
	r := &rest{last: heapNow(), collected: heapNow().allocated}
	before := r.last.objects
	runtime.KeepAlive(held)
	for range longQuiet {
		r.collect()
	}
	if now := heapNow().objects; now > before-garbage/2 {
		t.Errorf("%d bytes of objects after %d quiet looks, %d before them", now, longQuiet, before)
	}
}

// sink prevents the compiler from removing allocations.
var sink []byte

func percent() int { return int(read("/gc/gogc:percent")) }

func read(metric string) uint64 {
	sample := []metrics.Sample{{Name: metric}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
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
