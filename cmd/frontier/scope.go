package main

import (
	"fmt"

	"fetchd/frontier/scope"
	"fetchd/internal/cli"
)

// newScope returns a scope, or an error about the flag that is not valid.
func newScope(c scope.Config) (*scope.Scope, error) {
	for _, one := range []struct {
		flag   string
		config scope.Config
	}{
		{"--scope", scope.Config{By: c.By}},
		{"--include", scope.Config{Include: c.Include}},
		{"--exclude", scope.Config{Exclude: c.Exclude}},
	} {
		if _, err := scope.New(one.config); err != nil {
			return nil, cli.UsageError(one.flag, fmt.Sprint(err))
		}
	}
	return scope.New(c)
}
