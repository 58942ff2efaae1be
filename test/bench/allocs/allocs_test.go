package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file returns the output of a run with two samples of each benchmark.
func file(rows ...string) string {
	head := "toolchain: go1.26.0\ngoos: linux\npkg: fetchd/fetch\ncpu: some: thing\n"
	return head + strings.Join(rows, "\n") + "\nPASS\nok  \tfetchd/fetch\t1.5s\n"
}

const (
	none  = "BenchmarkDecide/a_success \t 100\t 31.97 ns/op\t 0 B/op\t 0 allocs/op"
	many  = "BenchmarkFetch \t 100\t 31970 ns/op\t 14000 B/op\t 200 allocs/op"
	small = "BenchmarkParse \t 100\t 319 ns/op\t 208 B/op\t 20 allocs/op"
)

func parse(t *testing.T, text string) *results {
	t.Helper()
	r, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompare(t *testing.T) {
	baseline := file(none, many, small)
	for _, row := range []struct {
		name          string
		now           string
		faults, hints []string
	}{
		{"the same", baseline, nil, nil},
		{"time alone", strings.NewReplacer("31.97 ns", "9999 ns", "31970 ns", "1 ns", "319 ns", "31900 ns").Replace(baseline), nil, nil},
		{"bytes alone", strings.ReplaceAll(baseline, "14000 B", "99999 B"), nil, nil},
		{"as much as is allowed", strings.ReplaceAll(baseline, "200 allocs", "204 allocs"), nil, nil},
		{"one more", strings.ReplaceAll(baseline, "200 allocs", "205 allocs"),
			[]string{"MORE     fetchd/fetch BenchmarkFetch: 205 allocations per operation, 204 allowed, 200 in the baseline"}, nil},
		{"the first of nothing", strings.ReplaceAll(baseline, "\t 0 allocs", "\t 1 allocs"),
			[]string{"MORE     fetchd/fetch BenchmarkDecide/a_success: 1 allocations per operation, 0 allowed, 0 in the baseline"}, nil},
		{"one more of few", strings.ReplaceAll(baseline, " 20 allocs", " 21 allocs"),
			[]string{"MORE     fetchd/fetch BenchmarkParse: 21 allocations per operation, 20 allowed, 20 in the baseline"}, nil},
		{"a little less", strings.ReplaceAll(baseline, "200 allocs", "190 allocs"), nil, nil},
		{"much less", strings.ReplaceAll(baseline, "200 allocs", "189 allocs"), nil,
			[]string{"LESS     fetchd/fetch BenchmarkFetch: 189 allocations per operation, 200 in the baseline: renew it with .ci/allocs --write"}},
		{"one is missing", file(none, small),
			[]string{"MISSING  fetchd/fetch BenchmarkFetch: it is in the baseline and was not run"}, nil},
		{"one is new", file(none, many, small, strings.ReplaceAll(small, "Parse", "Write")),
			[]string{"NEW      fetchd/fetch BenchmarkWrite: it is not in the baseline"}, nil},
		{"of another package", strings.ReplaceAll(file(small), "fetchd/fetch", "fetchd/server") + file(none, many),
			[]string{"NEW      fetchd/server BenchmarkParse: it is not in the baseline",
				"MISSING  fetchd/fetch BenchmarkParse: it is in the baseline and was not run"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			faults, hints := compare(parse(t, baseline), parse(t, row.now))
			if diff := cmp.Diff([][]string{row.faults, row.hints}, [][]string{faults, hints}); diff != "" {
				t.Errorf("faults and hints (-want +got)\n%s", diff)
			}
		})
	}
}

// TestMedian has one outlier on either side.
func TestMedian(t *testing.T) {
	sample := func(n string) string { return strings.ReplaceAll(many, "200 allocs", n+" allocs") }
	for _, row := range []struct {
		name    string
		samples []string
		want    int
	}{
		{"one", []string{"7"}, 7},
		{"odd", []string{"900", "200", "201"}, 201},
		{"even", []string{"0", "202", "200", "900"}, 201},
	} {
		t.Run(row.name, func(t *testing.T) {
			var rows []string
			for _, n := range row.samples {
				rows = append(rows, sample(n))
			}
			r := parse(t, file(rows...))
			if got := r.median("fetchd/fetch BenchmarkFetch"); got != row.want || len(r.names) != 1 {
				t.Errorf("median of %v = %d of %q, want %d", row.samples, got, r.names, row.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "", "no benchmark results"},
		{"no benchmark", file("Benchmark results follow:", "BenchmarkFetch"), "no benchmark results"},
		{"no allocations", file("BenchmarkFetch 100 31 ns/op"), "run it with -benchmem"},
		{"no number", file("BenchmarkFetch 100 31 ns/op x allocs/op"), "allocs/op of fetchd/fetch BenchmarkFetch"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if r, err := read(row.text); !strings.Contains(fmt.Sprint(err), row.want) {
				t.Errorf("read(%q) = %v, %v; want an error with %q", row.text, r, err, row.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	grown := strings.ReplaceAll(file(many), "200 allocs", "300 allocs")
	for _, row := range []struct {
		name, now string
		want      bool
		contains  []string
	}{
		{"slower", strings.ReplaceAll(file(many), "31970 ns", "999999 ns"), true, []string{"1 benchmarks"}},
		{"more allocations", grown, false, []string{"300 allocations per operation, 204 allowed", ".ci/allocs --write"}},
		{"another Go", strings.ReplaceAll(grown, "go1.26.0", "go1.27.0"), false, []string{`"go1.26.0"`, `"go1.27.0"`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			report, got, err := judge(write(t, file(many)), write(t, row.now))
			if err != nil || got != row.want {
				t.Errorf("judge = %v, %v; want %v\n%s", got, err, row.want, report)
			}
			for _, part := range row.contains {
				if !strings.Contains(report, part) {
					t.Errorf("the report lacks %q:\n%s", part, report)
				}
			}
		})
	}
	none, some := filepath.Join(t.TempDir(), "none"), write(t, grown)
	for _, files := range [][2]string{{none, some}, {some, none}} {
		if report, ok, err := judge(files[0], files[1]); ok || err == nil {
			t.Errorf("judge(%q) = %q, %v, %v; want an error", files, report, ok, err)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
