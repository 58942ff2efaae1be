package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/bench/caller"
	"fetchd/test/must"
)

func TestRatios(t *testing.T) {
	recorded := ratios{"unary": 1.5, "many": 1}
	for _, row := range []struct {
		name string
		now  ratios
		want string // part of the error; empty means none
	}{
		{"the same", ratios{"unary": 1.5, "many": 1}, ""},
		{"less", ratios{"unary": 0.5, "many": 0.1}, ""},
		{"as much as is allowed", ratios{"unary": 1.72, "many": 1}, ""},
		{"more", ratios{"unary": 1.74, "many": 1}, "unary: the ratio is 1.74, 1.72 allowed, 1.50 recorded"},
		{"new", ratios{"unary": 1.5, "many": 1, "stream": 1}, "stream is not recorded"},
		{"no clock", ratios{"unary": 0, "many": 1}, "unary was not measured"},
		{"missing", ratios{"unary": 1.5}, "many is recorded and was not measured"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.now.compare(recorded)
			if row.want == "" && err != nil || !strings.Contains(fmt.Sprint(err), row.want) {
				t.Errorf("compare(%v) = %v, want %q", row.now, err, row.want)
			}
		})
	}
}

// TestRatiosOf checks that only the rows with a ratio are taken, and the median of the rounds.
func TestRatiosOf(t *testing.T) {
	runs := func(seconds ...float64) (all []*run) {
		for _, s := range seconds {
			all = append(all, &run{Result: caller.Result{Fetches: 1, CPUSeconds: s}})
		}
		return all
	}
	a, b := subject{name: "a"}, subject{name: "b"}
	m := measured{runs: map[string][]*run{"a": runs(3, 4, 90), "b": runs(2, 2, 2)}}
	m.rows = []row{{name: "one", of: a, base: b, figure: callerCPU}, {name: "two", of: a, base: b, figure: callerCPU, mode: difference}}
	if diff := cmp.Diff(ratios{"one": 2}, ratiosOf([]measured{m})); diff != "" {
		t.Errorf("ratiosOf (-want +got):\n%s", diff)
	}
}

func TestReadRatios(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ratios.txt")
	want := ratios{"unary": 1.524, "many": 0.97}
	must.Succeed(t, want.record(file))
	got, err := readRatios(file)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("readRatios: %v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"unary", "unary 1 2", "unary x", "unary 0"} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		if got, err := readRatios(file); err == nil {
			t.Errorf("readRatios(%q) = %v, want an error", text, got)
		}
	}
}
