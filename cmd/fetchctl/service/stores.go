package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

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

// CloseStores waits until unfinished uploads are removed and records are uploaded, and reports what is
// left. It returns the exit code of a command that ended with code: records that may be lost are a
// failure.
func CloseStores(ctx context.Context, p *cli.Program, set *stores.Set, code int) int {
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
			p.Errorf("records: %v", err)
			code = cmp.Or(code, cli.ExitOutput)
		}
	}
	for bodies := range set.All() {
		if err := bodies.Close(ctx); err != nil {
			p.Errorf("unfinished uploads were left in a store: %v: fetchd clean removes them", err)
		}
	}
	return code
}

// WARCStore is the name of the store for the records of --warc in the service inside fetchctl.
const WARCStore = "warc"

// CheckWARC rejects a file that is not one, and a service that does not write to files of this
// machine. instead says what to do with --server.
func CheckWARC(file *string, server, instead string) error {
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

// OpenWARC opens the file of --warc for the service inside, without the values of the headers to
// redact. The caller closes it with CloseStores.
func OpenWARC(file string, redact ...string) (*stores.Set, error) {
	a, err := archive.Open(WARCStore, archive.Config{File: file, Redact: redact, Software: version.Long(),
		MaxSpoolBytes: math.MaxInt64 / 2}) // one user: the disk is the limit
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the name of the store, which the user did not give
		}
		return nil, &cli.Error{Code: cli.ExitOutput, Err: fmt.Errorf("--warc: %w", err)}
	}
	return stores.Of(a), nil
}
