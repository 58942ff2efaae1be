package main

import (
	"context"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// migrateCmd is "frontier migrate".
type migrateCmd struct{ database }

func (c *migrateCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, existing, func(store.Store) error { // opening it migrates it
		out := &cli.Printer{W: a.Out}
		out.Printf("The database has the schema of this version.\n")
		return out.End()
	})
}
