package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// CheckUTF8 rejects values, by the name of their flag, that a protobuf message cannot hold.
func CheckUTF8(values map[string]string) error {
	for field, value := range values {
		if !utf8.ValidString(value) {
			return UsageError(field, "is not UTF-8: percent-encode it")
		}
	}
	return nil
}

// InputError returns a usage error about a file that cannot be read, unless the program was
// interrupted.
func InputError(field string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return UsageError(field, fmt.Sprintf("%v", err))
}

// ReadInput reads the named file, or stdin for "-", up to limit + 1 bytes. It returns when ctx
// ends, even if a read of stdin still blocks.
func ReadInput(ctx context.Context, name string, stdin io.Reader, limit int64) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		stdin = f
	}
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(stdin, limit+1))
		read <- result{data, err}
	}()
	select {
	case r := <-read:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
