package main

import (
	"errors"
	"fmt"
	"math"

	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/stores"
	"fetchd/stores/archive"

	pb "fetchd/gen/fetchd/v1"
)

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
