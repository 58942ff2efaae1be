package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"time"
)

// Reasons of an [Error].
const (
	ReasonUnavailable = "store_unavailable" // refused without a try: closed, or the last writes failed
	ReasonError       = "store_error"
	ReasonFull        = "store_full" // the disk, or MaxSpoolBytes
)

var (
	errClosed = errors.New("is closed")
	errPause  = errors.New("refuses records for a moment, because the last ones could not be written")
	errFull   = errors.New("has no space for more: exchanges in flight and files that wait for their upload use all of it")
	errShare  = errors.New("has no space for more of this caller: its exchanges in flight use its share")
)

// Error is a failure of the archive.
type Error struct {
	archive, op, reason string
	err                 error
}

// Reason returns [ReasonUnavailable], [ReasonError] or [ReasonFull].
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Error returns a text for the operator. It may contain paths.
func (e *Error) Error() string { return e.with(fmt.Sprint(e.err)) }

// Detail returns a text for callers, without paths.
func (e *Error) Detail() string {
	errno, ok := errors.AsType[syscall.Errno](e.err)
	_, path := errors.AsType[*fs.PathError](e.err)
	switch {
	case e.op == "":
		return e.with(fmt.Sprint(e.err))
	case ok:
		return e.with(fmt.Sprint(errno))
	case path:
		return e.with("the file system refused it")
	}
	return e.with("the record cannot be written")
}

func (e *Error) with(text string) string {
	if e.op == "" {
		return fmt.Sprintf("store %s %s", e.archive, text)
	}
	return fmt.Sprintf("store %s: %s: %s", e.archive, e.op, text)
}

// refusal is an error without a try.
func (a *Archive) refusal(reason string, err error) *Error {
	return &Error{archive: a.name, reason: reason, err: err}
}

// failed counts and logs a failed operation.
func (a *Archive) failed(op string, err error) *Error {
	e := &Error{archive: a.name, op: op, reason: ReasonError, err: err}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.reason = ReasonFull
	}
	a.logger.Error("recording failed", slog.String("store", a.name), slog.Any("error", e))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Errors++
	return e
}

// fail is failed for the records of an exchange. An error that is not one of the file system is
// about that exchange, and does not close the archive to others.
func (a *Archive) fail(op string, err error) *Error {
	e := a.failed(op, err)
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.breaker.failed(time.Now(), a.times.breakerPause, e.reason)
	}
	return e
}

const breakerFailures = 5

// breaker refuses fetches after several writes in a row have failed, so that origins are not asked
// in vain. After a pause it lets all through: a write to a full disk fails fast.
type breaker struct {
	failures    int // in a row
	last, until time.Time
	reason      string // of the last one
}

func (b *breaker) ready(now time.Time) bool {
	return b.failures < breakerFailures || !now.Before(b.until)
}

// up is also true if no record was tried for some time: the state is not known then.
func (b *breaker) up(now time.Time, forgiven time.Duration) bool {
	return b.failures < breakerFailures || now.Sub(b.last) >= forgiven
}

func (b *breaker) failed(now time.Time, pause time.Duration, reason string) {
	b.failures++
	b.last, b.until, b.reason = now, now.Add(pause), reason
	if reason != ReasonFull {
		b.reason = ReasonUnavailable
	}
}

func (b *breaker) succeeded() { b.failures = 0 }
