package warc

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat is in the chain of an Error if the file is not a WARC file at its offset.
	ErrFormat = errors.New("not a WARC record")
	// ErrLimit is in the chain of an Error if a head exceeds a limit.
	ErrLimit = errors.New("limit exceeded")
)

// Error is an error after which a file cannot be read further. Its chain contains
//
//   - io.ErrUnexpectedEOF if the file ends inside a record,
//   - ErrFormat, ErrLimit or an error of gzip if the file is damaged,
//   - the error of the io.Reader if that failed: the file may be whole.
type Error struct {
	// Offset is the length of the whole records before the error. A file that ends inside a record
	// becomes a correct file if it is truncated to this length.
	Offset int64
	// Err is the cause.
	Err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("warc: the record at offset %d cannot be read: %v", e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
