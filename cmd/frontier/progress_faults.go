package main

import (
	"cmp"
	"fmt"
	"sync"

	"fetchd/frontier"
)

// faults counts the error classes of outcomes, those that are tried again too. It is
// safe for concurrent use.
type faults struct {
	mu sync.Mutex
	n  map[string]int64
}

// before counts outcomes and gives them on to next, which may be nil.
func (f *faults) before(next func(frontier.Record) error) func(frontier.Record) error {
	return func(r frontier.Record) error {
		if r.ErrorClass != "" {
			f.add(r.ErrorClass)
		}
		if next == nil {
			return nil
		}
		return next(r)
	}
}

func (f *faults) add(class string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = make(map[string]int64)
	}
	f.n[class]++
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
