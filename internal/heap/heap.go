// Package heap keeps Go's collector from running while there is little to collect, and
// has it run when much lies about and little happens.
package heap

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// least is how large the heap grows, in bytes, before the collector runs for the
// first time and while little lives. With Go's own 4 MiB it would run dozens of times
// a second under load, and each time every goroutine's stack would be looked at, cut
// down, and grown again by its next call.
const least = 64 << 20

// Hold has the collector of this process run no earlier than at 64 MiB, and by
// GOGC's rule of 100 where twice of what lives is more; and once when a burst is over,
// after which the system has back what is free. Who sets GOGC has his way. It is called
// once, before the process serves.
func Hold() {
	if os.Getenv("GOGC") == "" { //nolint:forbidigo // it is the runtime's own, and no metric tells that it was set to 100
		(&collected{}).again()
		time.AfterFunc(every, new(rest).look)
	}
}

// collected is garbage: its finalizer tells that the collector has run.
type collected struct {
	percent int
	_       *byte // what has no pointer shares its place with others, and their life
}

// again sets the percentage for the next collection, and waits for it.
func (c *collected) again() {
	if percent := percentFor(marked()); percent != c.percent {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
	runtime.SetFinalizer(&collected{percent: c.percent}, (*collected).again)
}

// percentFor is the GOGC with which the next collection of a heap in which so many
// bytes live begins at 64 MiB: in steps, for it is set while the world stands
// still. GOGC scales the bytes of roots, stacks above all, too.
func percentFor(live, roots uint64) int {
	const most, step = 1500, 50 // of Go's 4 MiB, which GOGC scales: 60 MiB
	if live == 0 {
		return most
	}
	percent := (least - min(float64(live), least)) / float64(live+roots) * 100
	return int(min(max(math.Floor(percent/step)*step, 100), most))
}

// marked is how many bytes of the heap the last collection has left, and how many of
// stacks and globals it has looked at.
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

// rest looks whether a burst is over. Go by itself collects again when as much has been
// allocated as lives, or after two minutes, and until then what ten thousand fetches
// have left on their way lies beside them.
type rest struct {
	last      heap
	collected uint64 // allocated bytes at the last forced collection
	again     bool   // the last look collected a burst, or freed memory
	quiet     int    // consecutive looks with little activity
}

// heap is the state of the process's, in bytes.
type heap struct {
	allocated uint64 // since the process began
	live      uint64 // that the last collection has left
	objects   uint64 // that live or are not collected yet
	free      uint64 // not returned to the system
}

// look comes once in a while.
func (r *rest) look() {
	r.collect()
	time.AfterFunc(every, r.look)
}

// collect has the collector run if the burst is over, and tells whether it has.
func (r *rest) collect() bool {
	now := heapNow()
	burst := burstOver(&r.last, &now) || bygone(&r.last, &now, r.collected)
	if r.quiet++; now.allocated-r.last.allocated >= quiet {
		r.quiet = 0
	}
	// Collect again a second later: pools survive one collection, and some of the burst may
	// have ended since. Go on while that frees memory. Also collect if much lives and little
	// has happened for some time, because memory that is released without a new allocation
	// shows nowhere else.
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

// bygone reports whether little happens now, and much has happened since the last
// collection. Live memory of that time may be garbage by now; only a collection shows it.
func bygone(last, now *heap, collected uint64) bool {
	return now.allocated-last.allocated < quiet && now.allocated-collected >= max(garbage, now.live/quietPart)
}

func heapNow() heap {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}
