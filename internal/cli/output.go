package cli

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// wholeFile is a file that gets its name when it is complete, so that no reader finds an incomplete
// one. It has another name in the same directory until [wholeFile.Keep]. Its errors have the name that
// it will get. It is for one goroutine.
type wholeFile struct {
	file *os.File // nil after close
	part string   // temporary name; empty if the file is written directly
	name string
}

// createWhole creates the file that will be called name. It gets the mode of an existing file with
// that name. If name is a symbolic link, the target is replaced. An existing device or pipe is
// written to directly. The caller ends with [wholeFile.Keep] or [wholeFile.Discard].
func createWhole(name string) (*wholeFile, error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target // the link stays
	}
	f := &wholeFile{name: name}
	mode := fs.FileMode(0o666)
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory", name)
	case !info.Mode().IsRegular():
		f.file, err = os.OpenFile(name, os.O_WRONLY, 0)
		return f.opened(err)
	default:
		mode = info.Mode().Perm()
	}
	dir, base := filepath.Split(name)
	f.part = filepath.Join(dir, fmt.Sprintf(".%.100s.%s.part", base, rand.Text()[:8]))
	f.file, err = os.OpenFile(f.part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	return f.opened(err)
}

func (f *wholeFile) opened(err error) (*wholeFile, error) {
	if err != nil {
		return nil, f.named(err)
	}
	return f, nil
}

// named returns err with the name of the file instead of the temporary one.
func (f *wholeFile) named(err error) error {
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: cause.Op, Path: f.name, Err: cause.Err}
	}
	if cause, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: cause.Op, Path: f.name, Err: cause.Err}
	}
	return err
}

// Write implements io.Writer.
func (f *wholeFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	return n, f.named(err)
}

// CanTruncate reports whether [wholeFile.Truncate] may be called. It returns false for a file that
// is written directly, because its readers may already have the bytes.
func (f *wholeFile) CanTruncate() bool { return f.part != "" }

// Truncate drops everything after the first size bytes. The next write follows them.
func (f *wholeFile) Truncate(size int64) error {
	if err := f.file.Truncate(size); err != nil {
		return f.named(err)
	}
	_, err := f.file.Seek(size, io.SeekStart)
	return f.named(err)
}

// Keep closes the file and gives it its name. If that fails, the file is removed.
func (f *wholeFile) Keep() error {
	file := f.file
	f.file = nil
	if err := file.Close(); err != nil {
		return errors.Join(f.named(err), f.remove())
	}
	if f.part == "" {
		return nil
	}
	if err := os.Rename(f.part, f.name); err != nil {
		return errors.Join(f.named(err), f.remove())
	}
	return nil
}

// Discard removes the file if it was not kept.
func (f *wholeFile) Discard() {
	if f.file == nil {
		return
	}
	_ = f.file.Close() // it is removed
	_ = f.remove()     // it may be gone already
	f.file = nil
}

func (f *wholeFile) remove() error {
	if f.part == "" {
		return nil
	}
	return f.named(os.Remove(f.part))
}
