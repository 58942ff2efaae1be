package main

import (
	"context"

	"fetchd/conformance/originrun"
	"fetchd/internal/cli"
)

type originCmd struct{ originrun.Flags }

// Help implements kong.HelpProvider.
func (*originCmd) Help() string { return originrun.Description }

// Manual is the end of the command's help.
func (*originCmd) Manual() cli.Manual {
	return cli.Manual{Exits: originrun.Exits, Examples: `
  fetch-conformance origin
  fetch-conformance origin --addr 127.0.0.1:9080 --log
  fetch-conformance origin --write-ca ca.pem`}
}

func (c *originCmd) run(ctx context.Context, a *app) error { return c.Serve(ctx, a.Out, a.Err) }
