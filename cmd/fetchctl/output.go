package main

import (
	"bufio"
	"fmt"
	"io"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/show"
	"fetchd/internal/wholefile"
)

// output is the destination of a body. A regular file gets its name when the body is complete.
type output struct {
	w        *bufio.Writer
	terminal *terminalWriter // nil if the body is written unchanged
	file     *wholefile.File // nil for standard output
}

// openOutput opens a file, or standard output for "" and "-". An existing device or pipe is
// written to directly.
func openOutput(name string, stdout io.Writer) (*output, error) {
	switch {
	case name == "" && cli.IsTerminal(stdout):
		t := &terminalWriter{w: stdout}
		return &output{w: bufio.NewWriter(t), terminal: t}, nil
	case name == "" || name == "-":
		return &output{w: bufio.NewWriter(stdout)}, nil
	}
	file, err := wholefile.Create(name)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	return &output{w: bufio.NewWriterSize(file, 64<<10), file: file}, nil
}

// write writes a part of the body.
func (o *output) write(p []byte) error {
	if _, err := o.w.Write(p); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// flush writes what is buffered.
func (o *output) flush() error {
	if err := o.w.Flush(); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// canTruncate reports whether written bytes can be taken back.
func (o *output) canTruncate() bool { return o.file != nil && o.file.CanTruncate() }

// truncate drops everything after the first size bytes.
func (o *output) truncate(size int64) error {
	if err := o.flush(); err != nil {
		return err
	}
	if err := o.file.Truncate(size); err != nil {
		return cli.OutputError(err)
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
		return cli.OutputError(err)
	}
	return nil
}

// discard removes an unfinished file.
func (o *output) discard() {
	if o.file != nil {
		o.file.Discard()
	}
}

// delivery writes the body of one fetch to its output.
type delivery struct {
	out     *output
	include bool
	head    *pb.ResponseStarted // of a body that has not started
	before  int64               // bytes of the status line and headers in out
	written int64               // body bytes
}

// take processes an event.
func (d *delivery) take(m *pb.FetchResponse) error {
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_ResponseStarted:
		d.head = e.ResponseStarted // a failed response has no body: keep the bytes so far
	case *pb.FetchResponse_BodyChunk:
		return d.chunk(e.BodyChunk)
	case *pb.FetchResponse_Outcome:
		return d.end(e.Outcome)
	}
	return nil
}

func (d *delivery) chunk(c *pb.BodyChunk) error {
	if err := d.begin(); err != nil {
		return err
	}
	d.written += int64(len(c.GetData()))
	if err := d.out.write(c.GetData()); err != nil || d.out.file != nil {
		return err
	}
	return d.out.flush() // standard output is not delayed
}

// end finishes the output of a successful fetch. A 304 and a redirect have no body: their head
// goes to standard output, and no file is written.
func (d *delivery) end(o *pb.FetchOutcome) error {
	switch o.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		if d.head.GetResponse().GetStatusCode()/100 == 2 { // an empty body
			if err := d.begin(); err != nil {
				return err
			}
		}
		if want := o.GetBodySummary().GetSizeBytes(); want != d.written {
			return fmt.Errorf("%w: the body has %d bytes, but %d came", client.ErrContract, want, d.written)
		}
	case pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED, pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		if d.out.file != nil {
			return nil
		}
		if err := d.begin(); err != nil {
			return err
		}
	default:
		return nil
	}
	return d.out.keep()
}

// begin prepares the output for the body of the last response. A body that starts again
// replaces what was written. A body that continues keeps its head.
func (d *delivery) begin() error {
	head, offset := d.head.GetResponse(), d.head.GetBodyOffsetBytes()
	d.head = nil
	switch {
	case head == nil:
		return nil
	case offset > d.written || offset < 0 || offset < d.written && !d.out.canTruncate():
		return fmt.Errorf("%w: a body begins at offset %d after %d bytes", client.ErrContract, offset, d.written)
	case offset < d.written && offset > 0:
		d.written = offset
		return d.out.truncate(d.before + offset)
	case offset > 0:
		return nil
	case d.written > 0:
		if err := d.out.truncate(0); err != nil {
			return err
		}
	}
	d.before, d.written = 0, 0
	return d.writeHead(head)
}

// writeHead writes the status line and the headers if --include is set.
func (d *delivery) writeHead(head *pb.HttpResponse) error {
	if !d.include {
		return nil
	}
	lines := cli.Escape(head.GetProtocol()) + " " + show.StatusLine(head.GetStatusCode()) + "\n"
	for _, h := range head.GetHeaders() {
		lines += show.HeaderText(h) + "\n"
	}
	lines += "\n"
	d.before = int64(len(lines))
	return d.out.write([]byte(lines))
}
