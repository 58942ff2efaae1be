package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// The exit codes. Scripts depend on them.
const (
	ExitOK            = 0
	ExitFailed        = 1
	ExitUsage         = 2
	ExitBadInput      = 3
	ExitNothing       = 4
	ExitAborted       = 5
	ExitTransient     = 10
	ExitPermanent     = 11
	ExitRateLimited   = 12
	ExitNeedsAuth     = 13
	ExitNotIdempotent = 14
	ExitService       = 20
	ExitOutput        = 21
	ExitDatabase      = 22
	ExitInterrupted   = 130
)

// meanings are the general meanings of the exit codes, for help texts.
var meanings = map[int]string{
	ExitOK:            "success",
	ExitFailed:        "the program failed, or a check did not hold",
	ExitUsage:         "usage: the command line, a setting or the request is not usable",
	ExitBadInput:      "some of the input is not usable; the rest was processed",
	ExitNothing:       "nothing found, or nothing completed",
	ExitAborted:       "an outcome aborted the crawl",
	ExitTransient:     "the fetch failed: transient, another try may succeed",
	ExitPermanent:     "the fetch failed: permanent, another try is not expected to succeed",
	ExitRateLimited:   "the fetch failed: the origin limits the rate, a later try may succeed",
	ExitNeedsAuth:     "the fetch failed: the origin requires (other) credentials",
	ExitNotIdempotent: "the fetch failed: the request was not sent again, because it may have taken effect",
	ExitService:       "the fetch service failed or cannot be reached",
	ExitOutput:        "a file or standard output cannot be written",
	ExitDatabase:      "the database failed or does not exist",
	ExitInterrupted:   "interrupted by SIGINT or SIGTERM",
}

// exitTable formats exit codes for a help text. Every command can succeed and can be
// called in the wrong way, so these two codes are always included.
func exitTable(exits map[int]string) string {
	all := map[int]string{ExitOK: "", ExitUsage: ""}
	maps.Copy(all, exits)
	var table strings.Builder
	for _, code := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&table, "  %-4d %s\n", code, cmp.Or(all[code], meanings[code]))
	}
	return table.String()
}

// Error is an error that ends the program with an exit code.
type Error struct {
	Code int
	Err  error
	// Hint says what to do about the error. It may be empty.
	Hint string
	// Printed reports whether the user has been told already.
	Printed bool
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// UsageError returns an error about a flag or an argument, which field names as the user
// writes it.
func UsageError(field, text string) error {
	return &Error{Code: ExitUsage, Err: errors.New(field + ": " + text)}
}

// maxFaults is how many of several errors are printed.
const maxFaults = 20

// UsageErrors returns the only error of faults, or one that has the first 20 and their number. It ignores nil.
func UsageErrors(faults iter.Seq[error]) error {
	n, texts, first := 0, []string(nil), error(nil)
	for err := range faults {
		if err == nil {
			continue
		}
		n, first = n+1, cmp.Or(first, err)
		if n <= maxFaults {
			texts = append(texts, fmt.Sprint(err))
		}
	}
	if n < 2 {
		return first
	}
	if n > maxFaults {
		texts = append(texts, fmt.Sprintf("and %d more", n-maxFaults))
	}
	return &Error{Code: ExitUsage, Err: fmt.Errorf("%d URLs are not usable", n), Hint: strings.Join(texts, "\n  ")}
}

// AboutFlag returns an error about a flag or an argument, unless err is an [Error] that says what it is about, or the
// end of a context.
func AboutFlag(field string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Error{Code: ExitUsage, Err: fmt.Errorf("%s: %w", field, err)}
}

// OutputError returns an error about output that cannot be written.
func OutputError(err error) error {
	return &Error{Code: ExitOutput, Err: fmt.Errorf("write: %w", err)}
}

// PrintedError returns an error that ends the program with code. Its text is not printed.
func PrintedError(code int, text string) error {
	return &Error{Code: code, Err: errors.New(text), Printed: true}
}

// CodeOf returns the exit code of err: [ExitFailed] if err has none.
func CodeOf(err error) int {
	if err == nil || errors.Is(err, ErrAnswered) {
		return ExitOK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ExitFailed
}

// Exit prints err and returns its exit code. If ctx has ended, a failure is its consequence:
// the program was interrupted.
func (p *Program) Exit(ctx context.Context, err error) int {
	code := CodeOf(err)
	e, _ := errors.AsType[*Error](err)
	switch {
	case code == ExitOK, e != nil && e.Printed:
		return code
	case ctx.Err() != nil && code != ExitInterrupted && (code == ExitFailed || code >= ExitTransient):
		p.Errorf("interrupted")
		return ExitInterrupted
	}
	p.Errorf("%v", err)
	if e != nil && e.Hint != "" {
		p.Hintf("%s", e.Hint)
	}
	return code
}
