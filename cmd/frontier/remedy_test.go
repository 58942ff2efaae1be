package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"fetchd/cmd/frontier/worker"
	"fetchd/frontier"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// TestHints checks that every error class has a hint, that there are no others, and that the flags
// in hints exist.
func TestHints(t *testing.T) {
	t.Parallel()
	program := cli.Program{Name: "frontier"}
	parsed, err := program.Parse(new(grammar), []string{"status"}, kong.Vars{"agent": worker.Agent()})
	must(t, err)
	flags := map[string]bool{}
	for _, node := range parsed.Model.Children {
		for _, f := range node.Flags {
			flags["--"+f.Name] = true
		}
	}
	classes := frontier.Classes()
	for _, class := range classes {
		if why.Hints[class] == "" {
			t.Errorf("%s has no hint", class)
		}
	}
	for class := range why.Hints {
		if !slices.Contains(classes, class) {
			t.Errorf("%s has a hint and is no class", class)
		}
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(why.Remedy(class), -1) {
			if !flags[flag] {
				t.Errorf("%s: %s is no flag", class, flag)
			}
		}
	}
}
