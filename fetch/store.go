package fetch

import (
	"context"
	"errors"
	"time"

	"fetchd/fetch/conns"
	"fetchd/internal/budget"
)

// Destination takes the body of one fetch with delivery [Store] (spec B8). Its errors end the fetch
// as STORE_FAILURE (P8), except budget.ErrRefused, which ends it as OUT_OF_MEMORY, and errors after
// the fetch has ended. An error that implements [StoreError] says more.
type Destination interface {
	// Ready returns an error if the store is known to be down. The fetch then ends without
	// an attempt.
	Ready() error
	// Begin starts an upload. It makes no request to the store before it must. Every request of
	// the upload ends with ctx.
	Begin(ctx context.Context, o Object) (Upload, error)
}

// Object describes what is uploaded.
type Object struct {
	// ContentType is that of the response. It may be empty.
	ContentType string
	// Size is in bytes. It is negative if it is not known. The origin announced it, so
	// nothing may be reserved for it.
	Size int64
	// Memory is charged for what the upload holds.
	Memory *budget.Lease
}

// Upload is a body on its way to a store. One goroutine at a time uses it.
type Upload interface {
	// Space returns memory for the next bytes of the body, at least one byte. It waits while the
	// store is busy.
	Space() ([]byte, error)
	// Wrote adds the first n bytes of the last Space. It does not wait.
	Wrote(n int) error
	// Commit makes the object visible. sha256 is the digest of all bytes written, in
	// hexadecimal.
	Commit(sha256 string) (StoredObject, error)
	// Abort drops the upload, and does nothing after Commit has succeeded. It does not
	// wait for the store, and may be called again.
	Abort()
}

// StoredObject is where a body is.
type StoredObject struct {
	// Key is that of the object in the store.
	Key string
	// ETag and Version are what the store calls the object. They may be empty.
	ETag, Version string
}

// StoreError is an error that says more about a failure of a store.
type StoreError interface {
	error
	// Reason is [Failure].Reason.
	Reason() string
	// Detail is the error without addresses, for callers.
	Detail() string
}

// storeText returns the error of a store for callers, and its reason.
func storeText(err error) (detail, reason string) {
	if known, ok := errors.AsType[StoreError](err); ok {
		return known.Detail(), known.Reason()
	}
	return "", "store_error"
}

// Recorder records the exchanges of one fetch (spec B9). Its errors, and those of its recordings,
// end the fetch as a [Destination]'s do.
type Recorder interface {
	// Ready returns an error if the records could not be written now. The fetch then ends
	// without an attempt.
	Ready() error
	// Begin starts the recording of an exchange. Memory is charged for what the recording
	// holds. It makes no system call.
	Begin(memory *budget.Lease) Recording
}

// Recording is what is recorded of one exchange. A byte that comes after Commit or Discard is
// ignored.
type Recording interface {
	conns.Tap
	// Commit writes the records, and returns them when they can be read.
	Commit(e *RecordedExchange) ([]Record, error)
	// Discard drops the recording, and does nothing after Commit.
	Discard()
}

// RecordedExchange describes an exchange that is over.
type RecordedExchange struct {
	URL, Method string
	Start       time.Time
	// RemoteAddress, Protocol and TLSVersion are as in [conns.Report].
	RemoteAddress, Protocol, TLSVersion string
	// Redact are the names of request fields that must not be recorded, and RedactResponse those of the response.
	Redact, RedactResponse []string
	// RequestLength is the length of the body of the request.
	RequestLength int64
	// ContentLength is the length of the body if the head says it, or else negative. Chunked
	// reports whether it was sent in chunks, Bodyless whether the response can have none.
	ContentLength     int64
	Chunked, Bodyless bool
	// Truncated says why the response is not whole.
	Truncated Truncation
}

// Truncation is why a response is not recorded to its end.
type Truncation uint8

// The reasons. The zero value is Whole.
const (
	Whole        Truncation = iota // It is.
	TooLong                        // It exceeds a limit of its size.
	TookTooLong                    // A time limit passed.
	Disconnected                   // The connection broke.
	Stopped                        // The fetch was cancelled, or did not need the rest.
)

// Record says where a record is.
type Record struct {
	Type           RecordType
	ID, File       string
	Offset, Length int64 // in bytes
	Attempt, Hop   int   // from 1
	Time           time.Time
	PayloadDigest  string // empty: there is no payload
}

// RecordType is what a record contains.
type RecordType uint8

// The types of records.
const (
	RecordedRequest RecordType = iota + 1
	RecordedResponse
	RecordedRevisit // A response whose payload is in an earlier record.
)
