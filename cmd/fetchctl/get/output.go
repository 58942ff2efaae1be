package get

import (
	"fmt"
	"io"
	"os"
	"strings"

	"fetchd/client"
	"fetchd/cmd/fetchctl/download"
	"fetchd/cmd/fetchctl/service"
	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// delivery writes the body of one fetch to its output.
type delivery struct {
	out     *cli.Output     // with -O nil until the body starts
	screen  *terminalWriter // nil if the body is written unchanged
	include bool
	failed  bool                // the body of a failed response is written
	stored  bool                // the service delivers it to a store
	url     string              // of the file of -O, or empty
	file    string              // name of that file
	head    *pb.ResponseStarted // of a body that has not started
	before  int64               // bytes of the status line and headers in out
	written int64               // body bytes
}

// take processes an event. A body that goes to a store has no events.
func (d *delivery) take(m *pb.FetchEvent) error {
	if d.stored {
		return nil
	}
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_ResponseStarted:
		d.head = e.ResponseStarted // a failed response has no body: keep the bytes so far
	case *pb.FetchEvent_BodyChunk:
		return d.chunk(e.BodyChunk)
	case *pb.FetchEvent_Outcome:
		return d.end(e.Outcome)
	}
	return nil
}

func (d *delivery) chunk(c *pb.BodyChunk) error {
	if err := d.begin(); err != nil {
		return err
	}
	d.written += int64(len(c.GetData()))
	if _, err := d.out.Write(c.GetData()); err != nil || d.out.IsFile() {
		return err
	}
	return d.out.Flush() // standard output is not delayed
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
		want := o.GetBodySummary().GetSizeBytes()
		if text := o.GetTextSummary(); text != nil {
			want = text.GetSizeBytes()
			if err := d.chunk(&pb.BodyChunk{Data: o.GetInlineBody()}); err != nil {
				return err
			}
		}
		if want != d.written {
			return fmt.Errorf("%w: the body has %d bytes, but %d came", client.ErrContract, want, d.written)
		}
	case pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED, pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		if d.url != "" || d.out.IsFile() {
			return nil
		}
		if err := d.begin(); err != nil {
			return err
		}
	default:
		if written, err := d.failure(o); !written || err != nil {
			return err
		}
	}
	if err := d.out.Keep(); err != nil || d.screen == nil {
		return err
	}
	return d.screen.flush()
}

// failure writes the head and the body of a failed response, as far as they are wanted. A good file is only replaced by
// the body of a wrong status, never by a part.
func (d *delivery) failure(o *pb.FetchOutcome) (written bool, err error) {
	wrong := d.failed && o.GetResponse().GetStatusCode() >= 400
	if o.GetResponse() == nil || d.written > 0 || !wrong && (d.out == nil || d.out.IsFile()) {
		return false, nil
	}
	if err := d.name(o.GetResponse()); err != nil {
		return false, err
	}
	if err := d.writeHead(o.GetResponse()); err != nil || !d.failed {
		return true, err
	}
	_, err = d.out.Write(o.GetErrorBody())
	return true, err
}

// begin prepares the output for the body of the last response. A body that starts again
// replaces what was written. A body that continues keeps its head.
func (d *delivery) begin() error {
	head, offset := d.head.GetResponse(), d.head.GetBodyOffsetBytes()
	d.head = nil
	switch {
	case head == nil:
		return nil
	case offset > d.written || offset < 0 || offset < d.written && !d.out.CanTruncate():
		return fmt.Errorf("%w: a body begins at offset %d after %d bytes", client.ErrContract, offset, d.written)
	case offset < d.written && offset > 0:
		d.written = offset
		return d.out.Truncate(d.before + offset)
	case offset > 0:
		return nil
	case d.written > 0:
		if err := d.out.Truncate(0); err != nil {
			return err
		}
	}
	d.before, d.written = 0, 0
	if err := d.name(head); err != nil {
		return err
	}
	return d.writeHead(head)
}

// name opens the file of -O, unless there is an output. An origin must not choose which file of the
// user is replaced.
func (d *delivery) name(head *pb.HttpResponse) error {
	if d.out != nil {
		return nil
	}
	d.file = download.Name(d.url, head)
	if _, err := os.Lstat(d.file); err == nil {
		return &cli.Error{Code: cli.ExitOutput, Err: fmt.Errorf("-O: %s exists: remove it, or replace it with -o", d.file)}
	}
	var err error
	d.out, err = cli.OpenOutput(d.file, nil)
	return err
}

// discard removes a file that was not kept.
func (d *delivery) discard() {
	if d.out != nil {
		d.out.Discard()
	}
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
	_, err := d.out.Write([]byte(lines))
	return err
}

// jsonLines writes every event as one line of JSON, without the data of body chunks.
func jsonLines(w io.Writer) func(*pb.FetchEvent) error {
	return func(m *pb.FetchEvent) error {
		if c := m.GetBodyChunk(); c != nil {
			m = &pb.FetchEvent{Sequence: m.GetSequence(), ElapsedOffset: m.GetElapsedOffset(),
				Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Attempt: c.GetAttempt(), OffsetBytes: c.GetOffsetBytes()}}}
		}
		return service.WriteJSON(w, m)
	}
}

// splitLines makes everything that is written to std.Err begin on a new line if standard
// output is the same terminal, because a body there may end without a line end. Only one
// goroutine at a time may then use the two streams.
func splitLines(std cli.Streams) cli.Streams {
	out, isFile := std.Out.(*os.File)
	err, both := std.Err.(*os.File)
	if !isFile || !both || !sameTerminal(out, err) {
		return std
	}
	body := &bodyOnTerminal{file: out}
	std.Out, std.Err = body, &linesOnTerminal{file: err, body: body}
	return std
}

func sameTerminal(a, b *os.File) bool {
	if !cli.IsTerminal(a) || !cli.IsTerminal(b) {
		return false
	}
	first, err := a.Stat()
	if err != nil {
		return false
	}
	second, err := b.Stat()
	return err == nil && os.SameFile(first, second)
}

// bodyOnTerminal is standard output.
type bodyOnTerminal struct {
	file   *os.File
	inLine bool // the last byte was not a line end
}

// Fd makes it a terminal for [cli.IsTerminal].
func (b *bodyOnTerminal) Fd() uintptr { return b.file.Fd() }

// Write implements io.Writer.
func (b *bodyOnTerminal) Write(p []byte) (int, error) {
	n, err := b.file.Write(p)
	if n > 0 {
		b.inLine = p[n-1] != '\n'
	}
	return n, err
}

// linesOnTerminal is standard error.
type linesOnTerminal struct {
	file *os.File
	body *bodyOnTerminal
}

// Fd makes it a terminal for [cli.IsTerminal].
func (l *linesOnTerminal) Fd() uintptr { return l.file.Fd() }

// Write implements io.Writer.
func (l *linesOnTerminal) Write(p []byte) (int, error) {
	if l.body.inLine {
		if _, err := l.file.Write([]byte("\n")); err != nil {
			return 0, err
		}
		l.body.inLine = false
	}
	return l.file.Write(p)
}

// terminalWriter writes a body to a terminal, and escapes control characters.
type terminalWriter struct {
	w    io.Writer
	rest []byte // an incomplete character or line end
}

// Write implements io.Writer.
func (t *terminalWriter) Write(p []byte) (int, error) {
	text := append(t.rest, p...)
	whole := show.WholeRunes(text)
	lines := strings.ReplaceAll(string(text[:whole]), "\r\n", "\n")
	out := cli.AppendEscaped(nil, lines, func(r rune) bool { return r == '\n' || r == '\t' })
	t.rest = append([]byte(nil), text[whole:]...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the rest of a body that ends within a character.
func (t *terminalWriter) flush() error {
	_, err := t.w.Write(cli.AppendEscaped(nil, string(t.rest), func(rune) bool { return false }))
	t.rest = nil
	return err
}
