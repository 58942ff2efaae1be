// Command allocs compares the allocations of benchmarks with a baseline. It compares only
// allocations per operation, because times differ between machines. .ci/allocs runs the
// benchmarks and then this command.
//
//	allocs BASELINE NOW
//
// Both files are in Go's benchmark format, made with -benchmem. It exits with status 1 if a
// benchmark allocates more than allowed, or is in only one of the files.
package main

import (
	"fmt"
	"os"
	"strings"
)

const remedy = `Find what allocates with go test -run '^$' -bench NAME -cpu 1 -memprofile mem.out PACKAGE
and go tool pprof -sample_index=alloc_objects mem.out. If the change is meant, run
.ci/allocs --write and commit test/bench/allocs/baseline.txt with it; say why in the commit.
`

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: allocs BASELINE NOW")
		os.Exit(2)
	}
	report, ok, err := judge(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "allocs:", err)
	}
	fmt.Print(report)
	if !ok {
		os.Exit(1)
	}
}

// judge reports how two files differ, and whether the differences are allowed.
func judge(baseline, now string) (report string, ok bool, err error) {
	before, err := load(baseline)
	if err != nil {
		return "", false, err
	}
	after, err := load(now)
	if err != nil {
		return "", false, err
	}
	var out strings.Builder
	faults, hints := compare(before, after)
	for _, line := range append(hints, faults...) {
		fmt.Fprintln(&out, line)
	}
	if len(faults) == 0 {
		fmt.Fprintf(&out, "%d benchmarks allocate no more than is allowed\n", len(after.names))
		return out.String(), true, nil
	}
	if before.toolchain != after.toolchain {
		fmt.Fprintf(&out, "The baseline is of %q and this is of %q, which may be the reason.\n", before.toolchain, after.toolchain)
	}
	out.WriteString(remedy)
	return out.String(), false, nil
}

func load(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := read(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
