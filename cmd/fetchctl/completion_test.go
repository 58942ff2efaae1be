package main

import (
	"testing"

	"fetchd/test/clitest"
)

// TestCompletion is not parallel: for a moment, the shells that it starts hold the locks of files
// that other tests have open.
func TestCompletion(t *testing.T) {
	clitest.Completion(t, "fetchctl", func(args ...string) (int, string, string) {
		got := fetchctl.Run(t, args...)
		return got.Code, got.Out, got.Err
	}, map[string][]string{
		"fetchctl d":                   {"download", "demo"},
		"fetchctl get --profile d":     {"download"},
		"fetchctl get --verb":          {"--verbose"},
		"fetchctl explain --profile d": {"download"},
		"fetchctl explain --verb":      nil,
		"fetchctl get -o scr":          {"script"},
		"fetchctl completion f":        {"fish"},
	})
}
