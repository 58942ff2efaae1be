package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/dial"
)

// The exit statuses. Scripts stand on them.
const (
	exitOK          = 0
	exitUsage       = 1
	exitBroken      = 2
	exitBadInput    = 3
	exitUnknownURL  = 4 // of why
	exitNothing     = 4 // of run
	exitAborted     = 5
	exitDatabase    = 20
	exitOutput      = 21
	exitService     = 22
	exitInterrupted = 130
)

// usageError says that a flag or an argument is not usable.
type usageError struct {
	field string // as the user wrote it: a flag or an argument
	text  string
}

// Error tells both.
func (e *usageError) Error() string { return e.field + ": " + e.text }

// outputError says that what was asked for could not be written.
type outputError struct{ err error }

// Error tells the cause.
func (e *outputError) Error() string { return "write: " + e.err.Error() }

// Unwrap returns the cause.
func (e *outputError) Unwrap() error { return e.err }

// toldError ends a command with an exit status whose reason its user has read.
type toldError struct {
	status int
	text   string
}

// Error tells what was told.
func (e *toldError) Error() string { return e.text }

// end tells why a command could not do its work, where it could not, and
// returns the exit status.
func (a *app) end(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if told, ok := errors.AsType[*toldError](err); ok {
		return told.status
	}
	if flag, ok := errors.AsType[*dial.FlagError](err); ok {
		err = &usageError{flag.Flag, flag.Text}
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		a.errorf("%v", usage)
		return exitUsage
	}
	output, ok := errors.AsType[*outputError](err)
	switch {
	case errors.Is(err, frontier.ErrCrawlAborted):
		a.errorf("%v", err)
		a.hintf(`The crawl is paused for every worker: "frontier resume" takes that back.`)
		return exitAborted
	case ok && isClosedPipe(output.err):
		return exitOK // whoever read it has seen enough
	case ctx.Err() != nil:
		a.errorf("interrupted")
		return exitInterrupted
	case ok:
		a.errorf("%v", output)
		return exitOutput
	case errors.Is(err, frontier.ErrNoService):
		a.errorf("%v", err)
		a.hintf("Does it run, and do --server and the flags of TLS and of the token say how to reach it? Nothing was fetched.")
		return exitService
	}
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		// The driver's text repeats the address, and cannot always tell where the password is.
		a.errorf("--db: this is no address of a PostgreSQL database (it is not repeated here, for it may hold a password)")
		a.hintf("It looks like postgres://USER@HOST:PORT/NAME. Escape what is special in it (@ is %%40), or give the password with PGPASSWORD or ~/.pgpass.")
		return exitUsage
	}
	a.databaseFailed(err)
	return exitDatabase
}

func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// databaseFailed tells what went wrong with the database, and what to do about it.
func (a *app) databaseFailed(err error) {
	a.errorf("%v", err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case errors.Is(err, store.ErrNewerSchema):
		a.hintf("Use the version of frontier that was there last, or a newer one; or another database with --db.")
	case errors.Is(err, store.ErrNormalForm):
		a.hintf(`Write its URLs out with the version of frontier that made it ("frontier export"), and add them to a new database with this one.`)
	case connecting:
		a.hintf("Does the server run, and does it let you in? The password can come from --db, PGPASSWORD or ~/.pgpass.")
	}
}
