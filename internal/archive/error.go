package archive

import (
	"errors"
	"fmt"
	"syscall"
)

// Reasons of an [Error].
const (
	ReasonUnavailable = "store_unavailable" // refused without a try: closed, or the last writes failed
	ReasonError       = "store_error"
	ReasonFull        = "store_full" // MaxSpoolBytes, or the disk
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
	if errno, ok := errors.AsType[syscall.Errno](e.err); ok {
		return e.with(fmt.Sprint(errno))
	}
	return e.with("the file system refused it")
}

func (e *Error) with(text string) string {
	if e.op == "" {
		return fmt.Sprintf("store %s %s", e.archive, text)
	}
	return fmt.Sprintf("store %s: %s: %s", e.archive, e.op, text)
}
