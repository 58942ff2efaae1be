package main

import (
	"fmt"

	"github.com/alecthomas/kong"

	"fetchd/internal/complete"
)

// completion prints the script for a shell.
func (p *program) completion(shell string) int {
	parser, err := kong.New(new(commandLine), kong.Name("fetchd"))
	if err == nil {
		err = complete.Write(p.stdout, shell, parser.Model)
	}
	if err != nil {
		return p.fail(fmt.Errorf("completion: %w", err), exitError)
	}
	return exitOK
}
