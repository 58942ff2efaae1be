package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"fetchd/frontier"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
)

// app is one run of the program.
type app struct {
	cli.Program
	given []string // flags on the command line, without their dashes
}

// command is a subcommand. Its run returns the exit code.
type command interface {
	run(ctx context.Context, a *app) int
}

// changed prints how far a command has come that changes many rows, and what to do if it was interrupted.
func (a *app) changed(ctx context.Context, err error, anything bool, done, hint, note string) error {
	switch {
	case ctx.Err() != nil:
		a.Errorf("interrupted: %s", done)
		a.Hintf("%s", hint)
		return cli.PrintedError(cli.ExitInterrupted, "interrupted")
	case err != nil && anything:
		return fmt.Errorf("%s: %w", done, err)
	case err != nil:
		return err
	}
	out := &cli.Printer{W: a.Out}
	out.Printf("%s%s.\n%s", strings.ToUpper(done[:1]), done[1:], note)
	return out.End()
}

// writeJSON writes v as one line.
func writeJSON(out *cli.Printer, v any) {
	if err := jsontext.NewEncoder(out).Encode(v); err != nil && out.Err == nil {
		out.Err = err
	}
}

// isAre formats a number with its noun and the verb: "1 fetch is", "2 fetches are".
func isAre(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return fmt.Sprintf("%d %s are", n, many)
}

// end prints why a command failed, if it did, and returns the exit code.
func (a *app) end(ctx context.Context, err error) int {
	if cli.CodeOf(err) == cli.ExitOutput && isClosedPipe(err) {
		return cli.ExitOK // the reader has seen enough
	}
	return a.Exit(ctx, withCode(err))
}

// withCode adds an exit code and a hint to an error that has none. An unknown error is
// one of the database.
func withCode(err error) error {
	if _, ok := errors.AsType[*cli.Error](err); ok || err == nil || errors.Is(err, cli.ErrAnswered) {
		return err
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	answer, _ := errors.AsType[*pgconn.PgError](err)
	_, badAddress := errors.AsType[*pgconn.ParseConfigError](err)
	e := &cli.Error{Code: cli.ExitDatabase, Err: err}
	switch {
	case errors.Is(err, frontier.ErrCrawlAborted):
		e.Code = cli.ExitAborted
		e.Hint = `The crawl is paused for every worker. "frontier resume" continues it.`
	case errors.Is(err, frontier.ErrNoService):
		e.Code = cli.ExitService
		e.Hint = "No URL was fetched. Is the service running, and are --server, the TLS flags and the token right?"
	case badAddress:
		// The driver's text repeats the address, and cannot always tell where the password is.
		e.Code = cli.ExitUsage
		e.Err = errors.New("--db: this is not an address of a PostgreSQL database (it is not repeated here, because it may contain a password)")
		e.Hint = "An address looks like postgres://USER@HOST:PORT/NAME. Escape special characters (@ is %40), or give the password with PGPASSWORD or ~/.pgpass."
	case errors.Is(err, store.ErrOlderSchema):
		e.Hint = `Run "frontier migrate" with a role that may change the schema. On a standby, run it on the primary.`
	case errors.Is(err, store.ErrReadOnly):
		e.Hint = `Give the primary, also with target_session_attrs=read-write in the parameters of --db, and a role that owns the tables. "status", "why", "export" and "robots" only read.`
	case errors.Is(err, store.ErrIsolation):
		e.Hint = "Change the default of the role (ALTER ROLE NAME SET default_transaction_isolation = 'read committed'), or add default_transaction_isolation=read%20committed to the parameters of --db."
	case errors.Is(err, store.ErrNewerSchema):
		e.Hint = "Use the version of frontier that was used last, or a newer one; or another database with --db."
	case errors.Is(err, store.ErrNormalForm):
		e.Hint = `Export its URLs with the version of frontier that made it ("frontier export"), and add them to a new database with this version.`
	case connecting && answer != nil && answer.Code == "3D000":
		e.Hint = "Create the database with createdb, or name another with --db."
	case connecting:
		// The driver tries each address with and without TLS, and repeats the error.
		e.Err = errors.New(strings.Join(slices.Compact(strings.Split(fmt.Sprint(err), "\n")), "\n"))
		e.Hint = "Is the server running, and does it accept your login? The password can come from --db, PGPASSWORD or ~/.pgpass."
	}
	return e
}

func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// secrets matches the parts of an address that may contain a password. For an address of a database
// it prefers to match too much.
var secrets = regexp.MustCompile(`(?i)(postgres(?:ql)?://)\S*@|(://)[^\s/?#]*@|(password\s*=\s*)(?:'[^']*'|[^\s&]+)`)

// safe makes text safe for one line of output: no control characters, no passwords.
func safe(s string) string {
	return cli.Escape(secrets.ReplaceAllStringFunc(strings.Join(strings.Fields(s), " "), func(match string) string {
		if strings.HasSuffix(match, "@") {
			return match[:strings.Index(match, "://")+3] + "xxxxx@"
		}
		name, _, _ := strings.Cut(match, "=")
		return name + "=xxxxx"
	}))
}

// normalURL returns the normal form of a URL of the command line, or a usage error. A text with an @ may
// contain a password, so it is not repeated.
func normalURL(field, text string) (string, error) {
	u, err := normal.NormalizeURL(text)
	if err == nil {
		return u, nil
	}
	if err := cli.CheckScheme(field, text); err != nil {
		return "", err
	}
	shown := "it"
	if !strings.Contains(text, "@") {
		shown = fmt.Sprintf("%.80q", text)
	}
	return "", cli.UsageError(field, fmt.Sprintf("%s is not usable: %v: give a complete URL, such as https://example.org/", shown, err))
}

// hostKey returns the host of an argument, which is a host or a URL, as the frontier stores it.
// Without a scheme it assumes https, or http if the port is 80, so that the default port is
// removed.
func hostKey(arg string) (string, error) {
	raw := arg
	if !strings.Contains(arg, "://") {
		if strings.Contains(arg, "@") {
			return "", cli.UsageError("HOST", "it contains user information (not repeated here): give only the host")
		}
		if strings.ContainsAny(arg, "/\\?#") || arg == "" {
			return "", cli.UsageError("HOST", fmt.Sprintf("%.80q is not a host: give one such as example.org or example.org:8080, or a whole URL", arg))
		}
		if addr, err := netip.ParseAddr(arg); err == nil && addr.Is6() {
			raw = "[" + arg + "]"
		}
		scheme := "https://"
		if strings.HasSuffix(raw, ":80") {
			scheme = "http://"
		}
		raw = scheme + raw + "/"
	}
	url, err := normal.NormalizeURL(raw)
	if err != nil {
		return "", cli.UsageError("HOST", fmt.Sprintf("%v: give a host such as example.org or example.org:8080, or a URL", err))
	}
	host, err := normal.ExtractHost(url)
	if err != nil {
		return "", cli.UsageError("HOST", fmt.Sprint(err))
	}
	return host, nil
}
