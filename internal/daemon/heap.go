package daemon

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// minHeap is the size of the heap, in bytes, below which the collector does not run. With Go's
// default of 4 MiB it would run dozens of times a second under load. Each run scans and shrinks
// the stack of every goroutine, and the next call grows it again.
const minHeap = 64 << 20

// HoldHeap makes the collector of this process run at a heap of 64 MiB, or at twice the live heap
// (GOGC=100) if that is more. After a burst it runs once more and returns free memory to the system.
// An explicit GOGC wins. Call HoldHeap once, before the process serves.
func HoldHeap() {
	if os.Getenv("GOGC") == "" { //nolint:forbidigo // a variable of the runtime; no metric shows that it was set to 100
		(&collected{}).again()
		time.AfterFunc(every, new(rest).look)
	}
}

// collected is garbage. Its finalizer runs after each collection.
type collected struct {
	percent int
	_       *byte // a pointer, because objects without one share memory and would be finalized late
}

// again sets GOGC for the next collection, after which it runs again.
func (c *collected) again() {
	if percent := percentFor(marked()); percent != c.percent {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
	runtime.SetFinalizer(&collected{percent: c.percent}, (*collected).again)
}

// percentFor returns the GOGC at which the next collection starts at 64 MiB. live is the live heap and
// roots the memory of stacks and globals, which GOGC scales, too. The result has steps, because each
// change of GOGC stops the world.
func percentFor(live, roots uint64) int {
	const highest, step = 1500, 50 // GOGC scales Go's minimum of 4 MiB: to 60 MiB
	if live == 0 {
		return highest
	}
	percent := (minHeap - min(float64(live), minHeap)) / float64(live+roots) * 100
	return int(min(max(math.Floor(percent/step)*step, 100), highest))
}

// marked returns the live heap after the last collection, and the stacks and globals that it
// scanned, in bytes.
func marked() (live, roots uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() + samples[2].Value.Uint64()
}

// A burst is over when less than quiet bytes are allocated in a second, or less than a
// part of what can be collected: at that rate the collector would not run for a long time
// by itself. The burst is worth a collection if it has left at least garbage bytes and a
// quarter of the live heap, as dead objects or as memory that the collector keeps free.
const (
	every     = time.Second
	quiet     = 1 << 20
	quietPart = 16
	garbage   = 16 << 20
	longQuiet = 10 // looks
)

// rest detects the end of a burst. Go itself collects again only when as much has been allocated as
// is live, or after two minutes. Until then the garbage of 10,000 fetches stays in memory.
type rest struct {
	last      heap
	collected uint64 // allocated bytes at the last forced collection
	again     bool   // the last look collected a burst, or freed memory
	quiet     int    // consecutive looks with little activity
}

// heap is the state of the heap of the process, in bytes.
type heap struct {
	allocated uint64 // since the process began
	live      uint64 // after the last collection
	objects   uint64 // live or not collected yet
	free      uint64 // not returned to the system
}

// look runs periodically.
func (r *rest) look() {
	r.collect()
	time.AfterFunc(every, r.look)
}

// collect runs the collector if a burst is over, and reports whether it did.
func (r *rest) collect() bool {
	now := heapNow()
	burst := burstOver(&r.last, &now) || bygone(&r.last, &now, r.collected)
	if r.quiet++; now.allocated-r.last.allocated >= quiet {
		r.quiet = 0
	}
	// Collect again a second later: pools survive one collection, and some of the burst may
	// have ended since. Repeat while that frees memory. Also collect if the live heap is large and
	// little has happened for some time: no metric shows memory that became garbage without new
	// allocations.
	over := burst || r.again && r.quiet > 0 || r.quiet >= longQuiet && now.live >= garbage
	if r.last = now; over {
		debug.FreeOSMemory() // collects first
		r.last = heapNow()
		r.collected, r.quiet = r.last.allocated, 0
	}
	r.again = burst || over && r.last.objects+quiet <= now.objects
	return over
}

// burstOver reports whether little was allocated between two looks, and much can be
// collected.
func burstOver(last, now *heap) bool {
	waste := now.free
	if now.objects > now.live {
		waste += now.objects - now.live
	}
	return waste >= max(garbage, now.live/4) && now.allocated-last.allocated < max(quiet, waste/quietPart)
}

// bygone reports whether little is allocated now, but much was since the last collection. Memory that
// was live then may be garbage now; only a collection shows it.
func bygone(last, now *heap, collected uint64) bool {
	return now.allocated-last.allocated < quiet && now.allocated-collected >= max(garbage, now.live/quietPart)
}

func heapNow() heap {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}
