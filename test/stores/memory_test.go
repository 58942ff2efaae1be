//go:build linux

package stores

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestMemory stores large bodies in a bucket, 64 at once, with fetchd in a container of 1 GiB
// and its default memory budget.
func TestMemory(t *testing.T) {
	ctx := rig.Long(t, 30*time.Minute)
	const atOnce = 64
	count, size := rig.Pick("FETCHD_STORES", 64, 200), rig.Pick[int64]("FETCHD_STORES", 16<<20, 64<<20)
	group, err := rig.NewCgroup(1 << 30)
	if err != nil {
		need.Missing(t, "run it as root on Linux, with a memory controller that can be written to", "no memory cgroup can be made: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := group.Remove(ctx); err != nil {
			t.Errorf("remove the cgroup: %v", err)
		}
	})
	o, s := newSite(t), newServer(ctx, t)
	p := start(ctx, t, o.Origin, rig.StoresFile(t, map[string]entry{"large": s.entry("large")}), rig.FetchdOptions{Cgroup: group})

	// The bodies of concurrent fetches differ, so that a mixed up part would be noticed.
	bodies := make([]body, 8)
	for i := range bodies {
		bodies[i] = body{size, int64(i) * 8}
		o.digest(t, bodies[i])
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var charged, used, budget int64
	var watch sync.WaitGroup
	watch.Go(func() {
		_ = wait.Until(watching, 100*time.Millisecond, func() bool {
			if now, err := rig.Metrics(watching, p.HTTP); err == nil {
				charged, budget = max(charged, int64(now["fetchd_memory_bytes"])), int64(now["fetchd_memory_budget_bytes"])
			}
			if now, err := group.Used(); err == nil {
				used = max(used, now)
			}
			return false
		})
	})
	before, err := p.CPU()
	must.Succeed(t, err)
	began := time.Now()
	var next atomic.Int64
	var fetches sync.WaitGroup
	for range atOnce {
		fetches.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				b, key := bodies[i%len(bodies)], fmt.Sprintf("body-%d", i)
				out, err := p.fetch(ctx, request(o.URL("http", "/s/"+key+"/"+b.step()), "large", key))
				o.wantStored(t, out, err, "large", key, b)
				if out.GetStoredObject() == nil {
					continue
				}
				if got := s.digest(ctx, "large/"+key); got != o.digest(t, b) {
					t.Errorf("%s: the object's digest is %s, want %s", key, got, o.digest(t, b))
				}
				s.remove(ctx, "large/"+key) // the disk may be small
			}
		})
	}
	fetches.Wait()
	took := time.Since(began)
	stop()
	watch.Wait()
	cpu, err := p.CPU()
	must.Succeed(t, err)
	if left := s.unfinished(ctx); len(left) > 0 {
		t.Errorf("%d unfinished uploads are left", len(left))
	}
	if kills, err := group.Kills(); kills != 0 || err != nil {
		t.Errorf("the kernel killed %d processes of the cgroup, %v", kills, err)
	}
	_, peak, err := p.Resident()
	must.Succeed(t, err)
	t.Logf("%d fetches of %d MiB, %d at once, in %s: peak resident %d MiB, peak of the cgroup %d MiB of 1,024, peak of the budget %d MiB of %d; %.1f ms of CPU for each MiB",
		count, size>>20, atOnce, took.Round(time.Second), peak>>20, used>>20, charged>>20, budget>>20,
		(cpu-before).Seconds()*1000/float64(int64(count)*size>>20))
}
