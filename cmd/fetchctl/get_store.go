package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"fetchd/internal/cli"
	"fetchd/stores"
)

// cleanTime is how long unfinished uploads of the service inside may take to be removed.
const cleanTime = 5 * time.Second

// uploadTime is how long the upload of records may take. A program that is interrupted does not wait
// so long: the next one with the same stores file uploads them.
const uploadTime = 5 * time.Minute

// checkStore rejects flags that do not go with --store, or that need it.
func (c *getCmd) checkStore() error {
	switch {
	case c.StoresFile != "" && c.Server != "":
		return cli.UsageError("--stores-file", "is for the service inside fetchctl: leave it out with --server or FETCHD_SERVER")
	case c.Store == "" && c.Key != "":
		return cli.UsageError("--key", "needs --store NAME")
	case c.Store == "" && c.Record == "" && c.StoresFile != "":
		return cli.UsageError("--stores-file", "needs --store NAME or --record NAME")
	case c.Store == "":
		return nil
	case c.StoresFile == "" && c.Server == "":
		return cli.UsageError("--store", "needs a service with stores: give --server, or --stores-file FILE for the service inside fetchctl")
	case c.Output != "":
		return cli.UsageError("-o", "is given with --store, and the body goes to the store: leave out one of them")
	case c.Include:
		return cli.UsageError("--include", "needs a body on standard output, and --store writes none: use --verbose")
	}
	return nil
}

// stores opens the stores of the service inside. The caller closes them with closeStores.
func (c *getCmd) stores() (*stores.Set, error) {
	if c.WARC != nil && c.User != "" {
		return openWARC(*c.WARC, "Authorization")
	}
	if c.WARC != nil {
		return openWARC(*c.WARC)
	}
	if c.StoresFile == "" {
		return new(stores.Set), nil
	}
	bodies, err := stores.ReadFile(c.StoresFile, new(stores.Set))
	if err != nil {
		return nil, cli.UsageError("--stores-file", fmt.Sprint(err))
	}
	return bodies, nil
}

// closeStores waits until unfinished uploads are removed and records are uploaded, and reports what is
// left. It returns the exit code of a command that ended with code: records that may be lost are a
// failure.
func closeStores(ctx context.Context, a *app, set *stores.Set, code int) int {
	limit := cleanTime
	for range set.Archives() {
		if ctx.Err() == nil {
			limit = uploadTime
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for records := range set.Archives() {
		if err := records.Close(ctx); err != nil {
			a.Errorf("records: %v", err)
			code = cmp.Or(code, cli.ExitOutput)
		}
	}
	for bodies := range set.All() {
		if err := bodies.Close(ctx); err != nil {
			a.Errorf("unfinished uploads were left in a store: %v: fetchd clean removes them", err)
		}
	}
	return code
}
