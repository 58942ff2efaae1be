package main

import (
	"context"

	"github.com/alecthomas/kong"

	"fetchd/internal/complete"
)

// completionCmd is "fetchctl completion".
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
		return a.fail(ctx, "", &outputError{err})
	}
	return exitOK
}

// Help is the text after the first line of "fetchctl completion --help". It
// implements kong.HelpProvider.
func (c *completionCmd) Help() string {
	return `Prints a script that completes commands, flags and their values. It never runs fetchctl and needs no other package.

Exit status: 0 printed; 1 usage; 21 cannot write.`
}

func (c *completionCmd) examples() string {
	return `  source <(fetchctl completion bash)
  fetchctl completion bash > ~/.local/share/bash-completion/completions/fetchctl
  fetchctl completion zsh > ~/.zfunc/_fetchctl        # a folder of fpath
  fetchctl completion fish > ~/.config/fish/completions/fetchctl.fish
`
}
