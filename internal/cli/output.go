package cli

import (
	"bufio"
	"io"
)

// Output is where a command writes its result: a file or standard output. A regular file gets
// its name when it is complete. Its errors are those of [OutputError].
type Output struct {
	w    *bufio.Writer
	file *wholeFile // nil for standard output
}

// OpenOutput opens a file, or stdout for "" and "-". An existing device or pipe is written to
// directly. The caller ends with [Output.Keep] or [Output.Discard].
func OpenOutput(name string, stdout io.Writer) (*Output, error) {
	if name == "" || name == "-" {
		return &Output{w: bufio.NewWriterSize(stdout, 64<<10)}, nil
	}
	file, err := createWhole(name)
	if err != nil {
		return nil, OutputError(err)
	}
	return &Output{bufio.NewWriterSize(file, 64<<10), file}, nil
}

// IsFile reports whether the output is not standard output.
func (o *Output) IsFile() bool { return o.file != nil }

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		return n, OutputError(err)
	}
	return n, nil
}

// Flush writes what is buffered.
func (o *Output) Flush() error {
	if err := o.w.Flush(); err != nil {
		return OutputError(err)
	}
	return nil
}

// CanTruncate reports whether [Output.Truncate] may be called.
func (o *Output) CanTruncate() bool { return o.file != nil && o.file.CanTruncate() }

// Truncate drops everything after the first size bytes.
func (o *Output) Truncate(size int64) error {
	if err := o.Flush(); err != nil {
		return err
	}
	if err := o.file.Truncate(size); err != nil {
		return OutputError(err)
	}
	return nil
}

// Keep writes what is buffered and gives a file its name.
func (o *Output) Keep() error {
	if err := o.Flush(); err != nil || o.file == nil {
		return err
	}
	if err := o.file.Keep(); err != nil {
		return OutputError(err)
	}
	return nil
}

// Discard removes a file that was not kept.
func (o *Output) Discard() {
	if o.file != nil {
		o.file.Discard()
	}
}
