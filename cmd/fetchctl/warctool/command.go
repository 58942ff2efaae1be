// Package warctool is the command "fetchctl warc", which indexes WARC files and checks them.
package warctool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fetchd/cmd/fetchctl/show"
	"fetchd/internal/cli"
	"fetchd/internal/wacz"
)

// Command is the command "fetchctl warc".
type Command struct {
	Index indexCommand `cmd:"" help:"Print an index of WARC files as CDXJ, sorted."`
	Check checkCommand `cmd:"" help:"Check every record of WARC files: digests, gzip members, fields, references."`
}

// indexCommand is the command "fetchctl warc index".
type indexCommand struct {
	File []string `arg:"" help:"WARC files, compressed or not. - is standard input."`
}

// checkCommand is the command "fetchctl warc check".
type checkCommand struct {
	File []string `arg:"" help:"WARC files, compressed or not, or WACZ packages. - is standard input."`
}

// Run prints the index and returns the exit code.
func (c *indexCommand) Run(ctx context.Context, p *cli.Program) int {
	index := wacz.NewIndex()
	defer index.Close()
	scan := newScan(ctx, p)
	code := cli.ExitOK
	fault := func(name, text string) {
		scan.progress.Clear()
		p.Errorf("%s: %s", name, text)
		code = cli.ExitFailed
	}
	err := scan.each(c.File, func(name string, file io.Reader) error {
		shared, err := index.Add(filepath.Base(name), file)
		if shared > 0 {
			fault(name, cli.Count(shared, "record")+" share a gzip member with others and cannot be read alone: they are not in the index")
		}
		if unread, ok := wacz.Unreadable(err); ok {
			fault(name, fmt.Sprintf("offset %d: %s", unread.Offset, unread.Text))
			return nil
		}
		return err
	})
	if err != nil {
		return p.Exit(ctx, err)
	}
	out, err := cli.OpenOutput("", p.Out)
	if err != nil {
		return p.Exit(ctx, err)
	}
	err = index.Lines(func(line string) error {
		_, err := out.Write([]byte(line + "\n"))
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return p.Exit(ctx, err)
	}
	return code
}

// Run checks and returns the exit code.
func (c *checkCommand) Run(ctx context.Context, p *cli.Program) int {
	out := &cli.Printer{W: p.Out}
	scan := newScan(ctx, p)
	check := wacz.NewCheck(func(found wacz.Problem) {
		scan.progress.Clear()
		out.Printf("%s: %s\n", cli.Escape(found.File), cli.Escape(found.String()))
	})
	defer check.Close()
	check.Stopped = ctx.Err
	err := scan.each(c.File, func(name string, file io.Reader) error {
		if in, ok := file.(*scanned); ok && in.at != nil && wacz.IsPackage(in.at) {
			return errors.Join(check.Package(name, in, in.size), out.End())
		}
		return errors.Join(check.File(name, file), out.End())
	})
	if err == nil {
		err = check.References()
	}
	if err == nil {
		out.Printf("%s\n", checked(&check.Counts))
		err = out.End()
	}
	if err != nil {
		return p.Exit(ctx, err)
	}
	if check.Problems > 0 {
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// checked formats what was counted:
//
//	1 file  3 records: 1 warcinfo, 1 request, 1 response  0 problems
func checked(c *wacz.Counts) string {
	var types []string
	for _, t := range wacz.Types {
		if n := c.Types[t]; n > 0 {
			types = append(types, fmt.Sprintf("%d %s", n, t))
		}
	}
	if c.Others > 0 {
		types = append(types, fmt.Sprintf("%d of other types", c.Others))
	}
	text := cli.Count(c.Files, "file") + "  " + cli.Count(c.Records, "record")
	if types != nil {
		text += ": " + strings.Join(types, ", ")
	}
	if c.Packages > 0 {
		text += fmt.Sprintf("  %s: %s, %s", cli.Count(c.Packages, "package"), cli.Count(c.Lines, "index line"), cli.Count(c.Pages, "page"))
	}
	text += "  " + cli.Count(c.Problems, "problem")
	if c.NotChecked > 0 {
		text += "  " + cli.Count(c.NotChecked, "digest") + " of unknown algorithms not checked"
	}
	if c.AsSent > 0 {
		text += "  " + cli.Count(c.AsSent, "payload digest") + " with the chunks of the transfer"
	}
	if c.Elsewhere > 0 {
		text += "  " + cli.Count(c.Elsewhere, "reference") + " to records in other files not checked"
	}
	return text
}

// scan reads files. On a terminal it draws how much was read.
type scan struct {
	ctx      context.Context
	program  *cli.Program
	progress show.Progress
}

func newScan(ctx context.Context, p *cli.Program) *scan {
	s := &scan{ctx: ctx, program: p, progress: show.Progress{On: cli.IsTerminal(p.Err) && p.Env("TERM") != "dumb", Out: &cli.Printer{W: p.Err}}}
	s.progress.Columns, _ = cli.TerminalSize(p.Err)
	return s
}

// each calls f for each file in order. A file that does not exist is a usage error, before the first
// one is read.
func (s *scan) each(names []string, f func(name string, file io.Reader) error) error {
	defer s.progress.Clear()
	for _, name := range names {
		if info, err := os.Stat(name); name == "-" {
			continue
		} else if err != nil {
			return cli.InputError("FILE", err)
		} else if info.IsDir() {
			return cli.UsageError("FILE", fmt.Sprintf("%q is a directory: give WARC files", name))
		}
	}
	for _, name := range names {
		if err := s.one(name, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) one(name string, f func(name string, file io.Reader) error) error {
	in := &scanned{scan: s, name: cli.Escape(name) + "  ", started: time.Now()}
	if name == "-" {
		in.in = &interruptible{ctx: s.ctx, in: s.program.In}
		s.progress.Start(0)
		return f(name, in)
	}
	file, err := os.Open(name)
	if err != nil {
		return cli.InputError("FILE", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	in.in, in.at = file, file
	if info, err := file.Stat(); err == nil {
		in.size = info.Size()
		s.progress.Start(in.size)
	}
	return f(name, in)
}

// scanned is a file that is read from its start to its end.
type scanned struct {
	*scan
	in      io.Reader
	at      io.ReaderAt // in, or nil for standard input
	name    string      // escaped
	size    int64       // of a regular file
	n       int64
	started time.Time
}

// Read implements io.Reader. It returns the error of the context when that has ended.
func (s *scanned) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.in.Read(p)
	s.n += int64(n)
	s.progress.Bytes(s.name, s.n, time.Since(s.started))
	return n, err
}

// ReadAt implements io.ReaderAt for a package.
func (s *scanned) ReadAt(p []byte, at int64) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.at.ReadAt(p, at)
	s.n = max(s.n, at+int64(n))
	s.progress.Bytes(s.name, s.n, time.Since(s.started))
	return n, err
}

// interruptible reads standard input, from which a read may block for ever.
type interruptible struct {
	ctx  context.Context
	in   io.Reader
	buf  [64 << 10]byte
	rest []byte
	err  error
}

// Read implements io.Reader. It returns when the context ends, even if a read still blocks.
func (r *interruptible) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			n, err := r.in.Read(r.buf[:])
			r.rest, r.err = r.buf[:n], err
		}()
		select {
		case <-done:
		case <-r.ctx.Done():
			return 0, r.ctx.Err() // the goroutine ends with the program
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if len(r.rest) == 0 {
		return n, r.err
	}
	return n, nil
}
