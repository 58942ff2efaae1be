package main

import (
	"context"

	"github.com/alecthomas/kong"

	"fetchd/internal/complete"
)

// completionCmd is "frontier completion".
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// run writes the script, and returns the exit status.
func (c *completionCmd) run(ctx context.Context, a *app) int {
	parser, err := kong.New(new(grammar), options(a, func(int) {})...)
	if err != nil {
		a.errorf("command line: %v", err)
		return exitUsage
	}
	if err := complete.Write(a.out, c.Shell, parser.Model); err != nil {
		return a.end(ctx, &outputError{err})
	}
	return exitOK
}

// Help is the text after the first line of "frontier completion --help". It
// implements kong.HelpProvider.
func (c *completionCmd) Help() string {
	return `Prints a script that completes commands, flags and their values. It never runs frontier and needs no other package.

Exit status: 0 printed; 1 usage; 21 cannot write.`
}

func (c *completionCmd) examples() string {
	return `  source <(frontier completion bash)
  frontier completion bash > ~/.local/share/bash-completion/completions/frontier
  frontier completion zsh > ~/.zfunc/_frontier        # a folder of fpath
  frontier completion fish > ~/.config/fish/completions/frontier.fish
`
}
