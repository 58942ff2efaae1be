package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"fetchd/frontier"
	"fetchd/frontier/store"
)

// faults counts the error classes of outcomes. It is safe for concurrent use.
type faults struct {
	mu  sync.Mutex
	n   map[string]int64 // since the last call of lately
	all map[string]*endings
}

// endings are how many URLs failed in a class.
type endings struct {
	dead   int64 // for good
	putOff int64 // to be tried again
}

// before counts outcomes and gives them on to next, which may be nil.
func (f *faults) before(next func(frontier.Record) error) func(frontier.Record) error {
	return func(r frontier.Record) error {
		if r.ErrorClass != "" {
			f.add(r.ErrorClass, r.Status)
		}
		if next == nil {
			return nil
		}
		return next(r)
	}
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
		f.all[class].putOff++
	}
}

// sum prints on a line each how many URLs failed in a class and what to do about it, the
// class that most failed in for good first.
func (f *faults) sum() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	classes := slices.SortedFunc(maps.Keys(f.all), func(a, b string) int {
		x, y := f.all[a], f.all[b]
		return cmp.Or(cmp.Compare(y.dead, x.dead), cmp.Compare(y.putOff, x.putOff), cmp.Compare(a, b))
	})
	var b strings.Builder
	for _, class := range classes {
		switch n := f.all[class]; {
		case n.dead == 0:
			fmt.Fprintf(&b, "%s: %d put off\n", class, n.putOff)
		case n.putOff == 0:
			fmt.Fprintf(&b, "%s: %d failed: %s\n", class, n.dead, remedy(class))
		default:
			fmt.Fprintf(&b, "%s: %d failed, %d put off: %s\n", class, n.dead, n.putOff, remedy(class))
		}
	}
	return b.String()
}

// lately tells the class that came most often since the last call, with its number;
// of several the first by name. It is empty where none came.
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
	told := fmt.Sprintf(", lately %d %s", f.n[most], most)
	clear(f.n)
	return told
}
