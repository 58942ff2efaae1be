package main

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/must"
)

// sample reads the package in testdata.
func sample(t *testing.T) *code {
	t.Helper()
	c, err := load("./testdata/sample")
	must.Succeed(t, err)
	return c
}

// TestLogLines checks that messages and keys are found in whatever way a line is written.
func TestLogLines(t *testing.T) {
	t.Parallel()
	got, err := sample(t).logLines()
	must.Succeed(t, err)
	want := []string{
		`"by a function too": f`,
		`"by a function": error`,
		`"cannot read": `,
		`"cannot write": `,
		`"cannot …": …_error`,
		`"is new": `,
		`"is old": `,
		`"started": name`,
		`"stopped": `,
		`"took": n`,
		`other key: count`,
		`other key: kept`,
		`other key: limit`,
		`other key: old`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	if got, err := sample(t).spans(); err != nil || strings.Join(got, " ") != "sample.key" {
		t.Errorf("spans have the keys %q, %v; want sample.key", got, err)
	}
}

// TestNamed checks what functions give to a name.
func TestNamed(t *testing.T) {
	t.Parallel()
	var got []string
	sample(t).inspect(func(s *source, n ast.Node) {
		for _, value := range s.named(n)["reason"] {
			got = append(got, s.text(value))
		}
	}, "internal/")
	if diff := cmp.Diff([]string{"denied", "not_allowed", "…"}, sortedUnique(got)); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}
