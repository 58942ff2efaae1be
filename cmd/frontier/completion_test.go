package main

import (
	"strings"
	"testing"

	"fetchd/test/clitest"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	clitest.Completion(t, "frontier", func(args ...string) (int, string, string) {
		got := runWith(t.Context(), strings.NewReader(""), nil, args...)
		return got.code, got.out, got.err
	}, map[string][]string{
		"frontier comp":            {"completion"},
		"frontier export --what=f": {"fetches"},
		"frontier add -i scr":      {"script"},
		"frontier why --wha":       nil,
		"frontier completion f":    {"fish"},
	})
}
