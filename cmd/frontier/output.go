package main

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

// output is where an export goes. A regular file gets its name when it is
// whole, and not before.
type output struct {
	w    *bufio.Writer
	file *os.File // nil: standard output
	part string   // temporary name; empty where there is none
	name string   // final name
}

// openOutput opens a file, or standard output for "" and "-". What exists and
// is no regular file, such as a device or a pipe, is written to directly.
func openOutput(name string, stdout io.Writer) (*output, error) {
	if name == "" || name == "-" {
		return &output{w: bufio.NewWriterSize(stdout, 64<<10)}, nil
	}
	o := &output{name: name}
	if err := o.create(); err != nil {
		return nil, &outputError{err}
	}
	o.w = bufio.NewWriterSize(o.file, 64<<10)
	return o, nil
}

// create opens the temporary file beside the final one, with its mode.
func (o *output) create() error {
	if target, err := filepath.EvalSymlinks(o.name); err == nil {
		o.name = target // a link goes on pointing where it points
	}
	mode := fs.FileMode(0o666)
	info, err := os.Stat(o.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", o.name)
	case !info.Mode().IsRegular():
		o.file, err = os.OpenFile(o.name, os.O_WRONLY, 0)
		return err
	default:
		mode = info.Mode().Perm()
	}
	dir, base := filepath.Split(o.name)
	o.part = filepath.Join(dir, fmt.Sprintf(".%.100s.%s.part", base, rand.Text()[:8]))
	o.file, err = os.OpenFile(o.part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	return err
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) { return o.w.Write(p) }

// keep writes what is left, and gives the file its name.
func (o *output) keep() error {
	err := o.w.Flush()
	if o.file == nil || err != nil {
		return outputFailed(err)
	}
	file := o.file
	o.file = nil
	if err := file.Close(); err != nil {
		return outputFailed(errors.Join(err, o.removePart()))
	}
	if o.part == "" {
		return nil
	}
	if err := os.Rename(o.part, o.name); err != nil {
		return outputFailed(errors.Join(err, o.removePart()))
	}
	return nil
}

func outputFailed(err error) error {
	if err == nil {
		return nil
	}
	return &outputError{err}
}

// discard leaves nothing of a file that was not kept.
func (o *output) discard() {
	if o.file == nil {
		return
	}
	_ = o.file.Close() // nobody wants it
	_ = o.removePart() // it may be gone already
	o.file = nil
}

func (o *output) removePart() error {
	if o.part == "" {
		return nil
	}
	return os.Remove(o.part)
}
