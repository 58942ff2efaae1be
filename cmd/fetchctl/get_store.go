package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/stores"
	"fetchd/stores/archive"
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

// warcStore is the name of the store for the records of --warc in the service inside.
const warcStore = "warc"

// checkWARC rejects a file that is not one, and a service that does not write to files of this
// machine. instead says what to do with --server.
func checkWARC(file *string, server, instead string) error {
	switch {
	case file == nil:
		return nil
	case *file == "" || *file == "-":
		return cli.UsageError("--warc", fmt.Sprintf("is %q: give the name of a file", *file))
	case server != "":
		return cli.UsageError("--warc", "is for the service inside fetchctl: "+instead)
	}
	return nil
}

// checkRecords rejects flags that do not go with --warc and --record.
func (c *getCmd) checkRecords() error {
	if err := checkWARC(c.WARC, c.Server, "with --server or FETCHD_SERVER, name a store of that service with --record"); err != nil {
		return err
	}
	switch {
	case c.WARC != nil && *c.WARC == c.Output:
		return cli.UsageError("--warc", "is the FILE of -o: give another")
	case c.WARC != nil && c.StoresFile != "":
		return cli.UsageError("--warc", "cannot be combined with --stores-file: put a store for records into that file, and name it with --record")
	case c.Record != "" && c.Server == "" && c.StoresFile == "":
		return cli.UsageError("--record", "needs a service with stores: give --server, or --stores-file FILE for the service inside fetchctl. --warc FILE needs neither")
	}
	return nil
}

// recordPolicy returns the policy of --warc and --record.
func (c *getCmd) recordPolicy() *pb.RecordPolicy {
	switch {
	case c.WARC != nil:
		return &pb.RecordPolicy{Store: warcStore}
	case c.Record != "":
		return &pb.RecordPolicy{Store: c.Record}
	}
	return nil
}

// openWARC opens the file of --warc for the service inside, without the values of the headers to
// redact. The caller closes it with closeStores.
func openWARC(file string, redact ...string) (*stores.Set, error) {
	a, err := archive.Open(warcStore, archive.Config{File: file, Redact: redact, Software: version.Long(),
		MaxSpoolBytes: math.MaxInt64 / 2}) // one user: the disk is the limit
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the name of the store, which the user did not give
		}
		return nil, &cli.Error{Code: cli.ExitOutput, Err: fmt.Errorf("--warc: %w", err)}
	}
	return stores.Of(a), nil
}
