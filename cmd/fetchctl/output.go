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

	pb "fetchd/gen/fetchd/v1"
)

// output is where a body goes. A regular file gets its name when the body is
// complete, and not before.
type output struct {
	w        *bufio.Writer
	terminal *terminalWriter // nil: the body goes out as it is
	file     *os.File        // nil: standard output
	part     string          // temporary name; empty where there is none
	name     string          // final name
}

// openOutput opens a file, or standard output for "" and "-". What exists and
// is no regular file, such as a device or a pipe, is written to directly.
func openOutput(name string, stdout io.Writer) (*output, error) {
	switch {
	case name == "" && isTerminal(stdout):
		t := &terminalWriter{w: stdout}
		return &output{w: bufio.NewWriter(t), terminal: t}, nil
	case name == "" || name == "-":
		return &output{w: bufio.NewWriter(stdout)}, nil
	}
	o := &output{name: name}
	if err := o.create(); err != nil {
		return nil, &outputError{err}
	}
	o.w = bufio.NewWriterSize(o.file, 64<<10)
	return o, nil
}

// create opens the temporary file beside the final one, with its mode.
func (o *output) create() (err error) {
	if target, err := filepath.EvalSymlinks(o.name); err == nil {
		o.name = target // a link goes on pointing where it points
	}
	mode := fs.FileMode(0o666)
	switch info, err := os.Stat(o.name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", o.name)
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

// write takes a piece of the body.
func (o *output) write(p []byte) error {
	if _, err := o.w.Write(p); err != nil {
		return &outputError{err}
	}
	return nil
}

// flush shows what was written so far.
func (o *output) flush() error {
	if err := o.w.Flush(); err != nil {
		return &outputError{err}
	}
	return nil
}

// keep completes the body and gives the file its name.
func (o *output) keep() error {
	if err := o.flush(); err != nil {
		return err
	}
	if o.terminal != nil {
		return o.terminal.flush()
	}
	if o.file == nil {
		return nil
	}
	file := o.file
	o.file = nil
	if err := file.Close(); err != nil {
		return &outputError{errors.Join(err, o.removePart())}
	}
	if o.part == "" {
		return nil
	}
	if err := os.Rename(o.part, o.name); err != nil {
		return &outputError{errors.Join(err, o.removePart())}
	}
	return nil
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

// delivery brings the body of one fetch to its output.
type delivery struct {
	out     *output
	include bool
	head    *pb.HttpResponse // to be written before the body
	written int64            // body bytes
}

// take does with an event what the body needs.
func (d *delivery) take(m *pb.FetchResponse) error {
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_ResponseStarted:
		d.head = e.ResponseStarted.GetResponse()
	case *pb.FetchResponse_BodyChunk:
		return d.chunk(e.BodyChunk)
	case *pb.FetchResponse_Outcome:
		return d.end(e.Outcome)
	}
	return nil
}

func (d *delivery) chunk(c *pb.BodyChunk) error {
	if c.GetOffsetBytes() != d.written {
		return fmt.Errorf("%w: a body chunk at offset %d came after %d bytes", errContract, c.GetOffsetBytes(), d.written)
	}
	if err := d.writeHead(); err != nil {
		return err
	}
	d.written += int64(len(c.GetData()))
	if err := d.out.write(c.GetData()); err != nil || d.out.file != nil {
		return err
	}
	return d.out.flush() // a reader of standard output sees it as it comes
}

// end keeps the output of a success. A 304 and a redirect have no body: they
// write their head to standard output, and no file.
func (d *delivery) end(o *pb.FetchOutcome) error {
	switch o.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		if want := o.GetBodySummary().GetSizeBytes(); want != d.written {
			return fmt.Errorf("%w: the body has %d bytes, but %d came", errContract, want, d.written)
		}
	case pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED, pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		if d.out.file != nil {
			return nil
		}
	default:
		return nil
	}
	if err := d.writeHead(); err != nil {
		return err
	}
	return d.out.keep()
}

// writeHead writes the status line and the headers once.
func (d *delivery) writeHead() error {
	head := d.head
	d.head = nil
	if !d.include || head == nil {
		return nil
	}
	lines := escape(head.GetProtocol()) + " " + statusLine(head.GetStatusCode()) + "\n"
	for _, h := range head.GetHeaders() {
		lines += headerText(h) + "\n"
	}
	return d.out.write([]byte(lines + "\n"))
}
