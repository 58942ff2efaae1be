package main

import (
	"bufio"
	"fmt"
	"io"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/wholefile"
)

// output is where a body goes. A regular file gets its name when the body is
// complete, and not before.
type output struct {
	w        *bufio.Writer
	terminal *terminalWriter // nil: the body goes out as it is
	file     *wholefile.File // nil: standard output
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
	file, err := wholefile.Create(name)
	if err != nil {
		return nil, &outputError{err}
	}
	return &output{w: bufio.NewWriterSize(file, 64<<10), file: file}, nil
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
	if err := o.file.Keep(); err != nil {
		return &outputError{err}
	}
	return nil
}

// discard leaves nothing of a file that was not kept.
func (o *output) discard() {
	if o.file != nil {
		o.file.Discard()
	}
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
		if d.written == 0 { // later it is of the body that goes on
			d.head = e.ResponseStarted.GetResponse()
		}
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
