package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// results are the allocations per operation in a file.
type results struct {
	toolchain string   // such as "go1.26.0 linux/amd64"; empty if the file has none
	names     []string // "PACKAGE BenchmarkNAME", in the order of the file
	samples   map[string][]int
}

// read parses the lines of the benchmark format that it needs and skips the others.
//
// # Source
//
// https://go.dev/design/14313-benchmark-format
func read(text string) (*results, error) {
	r := &results{samples: make(map[string][]int)}
	pkg := ""
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "toolchain":
			r.toolchain = value
			continue
		case "pkg":
			pkg = value
			continue
		}
		if err := r.add(pkg, strings.Fields(line)); err != nil {
			return nil, err
		}
	}
	if len(r.names) == 0 {
		return nil, errors.New("it has no benchmark results")
	}
	return r, nil
}

// add adds a line: the name, the number of operations, and then each value before its unit.
func (r *results) add(pkg string, fields []string) error {
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return nil
	}
	name := pkg + " " + fields[0]
	at := slices.Index(fields, "allocs/op")
	if at < 0 {
		return fmt.Errorf("%s has no allocs/op: run it with -benchmem", name)
	}
	n, err := strconv.Atoi(fields[at-1])
	if err != nil {
		return fmt.Errorf("allocs/op of %s: %w", name, err)
	}
	if r.samples[name] == nil {
		r.names = append(r.names, name)
	}
	r.samples[name] = append(r.samples[name], n)
	return nil
}

// median returns the median of a benchmark's samples. During one of them the garbage
// collector may have emptied pools.
func (r *results) median(name string) int {
	sorted := slices.Sorted(slices.Values(r.samples[name]))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}
