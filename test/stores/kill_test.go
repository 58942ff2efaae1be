//go:build linux

package stores

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// ledger has what was asked for, by store and key.
type ledger struct {
	mu      sync.Mutex
	bodies  map[string]map[string]body
	success map[string][]string
}

func newLedger() *ledger {
	return &ledger{
		bodies:  map[string]map[string]body{"bucket": {}, "folder": {}},
		success: make(map[string][]string),
	}
}

// fetch makes a fetch and records it. It returns the error of the call.
func (l *ledger) fetch(ctx context.Context, p *service, o *site, store, key string, b body, step string) error {
	l.mu.Lock()
	l.bodies[store][key] = b
	l.mu.Unlock()
	out, err := p.fetch(ctx, request(o.URL("http", "/s/"+store+"-"+strings.ReplaceAll(key, "/", "-")+"/"+step), store, key))
	if err == nil && out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.success[store] = append(l.success[store], key)
	}
	return err
}

// check compares the visible objects of a store with the ledger.
func (l *ledger) check(t *testing.T, o *site, store string, objects map[string]int64, digest func(key string) string) {
	t.Helper()
	for key, size := range objects {
		b, ok := l.bodies[store][key]
		switch {
		case !ok:
			t.Errorf("%s: no caller asked for %s", store, key)
		case size != b.size:
			t.Errorf("%s: %s has %d bytes, want %d", store, key, size, b.size)
		case digest(key) != o.digest(t, b):
			t.Errorf("%s: %s is not the body of the origin", store, key)
		}
	}
	for _, key := range l.success[store] {
		if _, ok := objects[key]; !ok {
			t.Errorf("%s: %s was stored, but is not visible", store, key)
		}
	}
}

// TestKill kills fetchd again and again while it stores bodies in a bucket and in a directory.
func TestKill(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 10*time.Minute)
	kills := rig.Pick("FETCHD_STORES", 10, 50)
	o, s, folder := newSite(t), newServer(ctx, t), directory(t.TempDir())
	entries := map[string]entry{"bucket": s.entry("kill"), "folder": {URL: "file://" + string(folder)}}
	stores := rig.StoresFile(t, entries)
	all := newLedger()
	sizes := []int64{0, 1, 100_000, 5 << 20, 5<<20 + 1, 15 << 20, 24 << 20, 64 << 20}
	files := 0 // left by all kills; the next start removes them
	for i := range kills {
		p := start(ctx, t, o.Origin, stores, rig.FetchdOptions{})
		var callers sync.WaitGroup
		// Two bodies stop in the middle, so that every kill is in mid-body.
		for _, store := range []string{"bucket", "folder"} {
			b := body{24 << 20, 8}
			callers.Go(func() {
				_ = all.fetch(ctx, p, o, store, fmt.Sprintf("%d/stalls", i), b, b.step()+",stall=13000000") // it is killed
			})
		}
		for caller := range 4 {
			random := rand.New(rand.NewPCG(uint64(i), uint64(caller)))
			callers.Go(func() {
				for n := 0; ; n++ {
					b := body{sizes[random.IntN(len(sizes))], 8 * random.Int64N(3)}
					if all.fetch(ctx, p, o, []string{"bucket", "folder"}[n%2], fmt.Sprintf("%d/%d-%d", i, caller, n), b, b.step()) != nil {
						return
					}
				}
			})
		}
		stalls := fmt.Sprintf("kill/%d/stalls", i)
		rig.Until(ctx, t, "an upload is in mid-body", func() bool { return slices.Contains(s.unfinished(ctx), stalls) })
		rig.Until(ctx, t, "a file is written", func() bool { return len(folder.unfinished(t)) > 0 })
		wait.For(ctx, time.Duration(rand.IntN(700))*time.Millisecond) // any moment
		p.Signal(syscall.SIGKILL)
		<-p.Gone
		callers.Wait()

		uploads := s.unfinished(ctx)
		if !slices.Contains(uploads, stalls) || len(folder.unfinished(t)) == 0 {
			t.Errorf("kill %d was not in mid-body: the unfinished uploads are %v", i, uploads)
		}
		files += len(folder.unfinished(t))
	}
	uploads := len(s.unfinished(ctx))
	objects := s.objects(ctx)
	for key := range maps.Clone(objects) { // the ledger has no prefix
		objects[key[len("kill/"):]] = objects[key]
		delete(objects, key)
	}
	all.check(t, o, "bucket", objects, func(key string) string { return s.digest(ctx, "kill/"+key) })
	inFolder := folder.objects(t)
	all.check(t, o, "folder", inFolder, func(key string) string { return folder.digest(t, key) })
	clean(ctx, t, entries)
	if left := s.unfinished(ctx); len(left) > 0 {
		t.Errorf("%d unfinished uploads are left after fetchd clean", len(left))
	}
	if left := folder.unfinished(t); len(left) > 0 {
		t.Errorf("temporary files are left after fetchd clean: %v", left)
	}
	t.Logf("%d kills: %d of %d bodies are in the bucket, %d were reported; %d of %d in the directory, %d were reported; all whole. "+
		"They left %d unfinished uploads and %d temporary files, and none after fetchd clean",
		kills, len(objects), len(all.bodies["bucket"]), len(all.success["bucket"]),
		len(inFolder), len(all.bodies["folder"]), len(all.success["folder"]), uploads, files)
}

// clean runs fetchd clean for the stores.
func clean(ctx context.Context, t *testing.T, entries map[string]entry) {
	t.Helper()
	p, err := rig.Start([]string{rig.Program("fetchd"), "clean", "--stores-file", rig.StoresFile(t, entries), "--older-than", "0s"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.ExitCode(ctx); code != 0 {
		t.Fatalf("fetchd clean: exit code %d, %v: %s", code, err, p.Failure)
	}
}
