package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
)

// faults counts the error classes of outcomes. It is safe for concurrent use.
type faults struct {
	mu  sync.Mutex
	n   map[string]int64 // since the last call of lately
	all map[string]*endings
}

// endings counts the URLs that failed with a class.
type endings struct {
	dead      int64 // not to be tried again
	postponed int64 // to be tried again
}

func (f *faults) add(class, status string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n, f.all = make(map[string]int64), make(map[string]*endings)
	}
	f.n[class]++
	if f.all[class] == nil {
		f.all[class] = new(endings)
	}
	if status == string(store.Dead) {
		f.all[class].dead++
	} else {
		f.all[class].postponed++
	}
}

// sum returns one line for each class with its counts and what to do about it. The class with the
// most dead URLs is first.
func (f *faults) sum() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	classes := slices.SortedFunc(maps.Keys(f.all), func(a, b string) int {
		x, y := f.all[a], f.all[b]
		return cmp.Or(cmp.Compare(y.dead, x.dead), cmp.Compare(y.postponed, x.postponed), cmp.Compare(a, b))
	})
	var b strings.Builder
	for _, class := range classes {
		switch n := f.all[class]; {
		case n.dead == 0:
			fmt.Fprintf(&b, "%s: %d postponed\n", class, n.postponed)
		case class == frontier.ClassRobotsDisallowed && n.postponed == 0:
			fmt.Fprintf(&b, "%s: %d: %s\n", class, n.dead, why.Remedy(class))
		case n.postponed == 0:
			fmt.Fprintf(&b, "%s: %d failed: %s\n", class, n.dead, why.Remedy(class))
		default:
			fmt.Fprintf(&b, "%s: %d failed, %d postponed: %s\n", class, n.dead, n.postponed, why.Remedy(class))
		}
	}
	return b.String()
}

// lately returns the most frequent class since the last call, with its number, or an empty text. Of
// equally frequent classes it returns the first by name.
func (f *faults) lately() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var most string
	for class, n := range f.n {
		if c := cmp.Compare(n, f.n[most]); c > 0 || c == 0 && class < most {
			most = class
		}
	}
	if most == "" {
		return ""
	}
	text := fmt.Sprintf(", lately %d %s", f.n[most], most)
	clear(f.n)
	return text
}
