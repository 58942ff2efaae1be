package worker

import (
	"errors"
	"io"
	"os"
	"strings"

	"fetchd/frontier"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
)

// lines writes outcomes as lines of JSON. It writes complete lines only.
type lines struct {
	w     io.Writer
	close func() error
}

// openLines appends to a file, or writes to standard output for "-".
func openLines(name string, stdout io.Writer) (*lines, error) {
	if name == "-" {
		return &lines{stdout, func() error { return nil }}, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	if err := endLine(f); err != nil {
		return nil, cli.OutputError(errors.Join(err, f.Close()))
	}
	return &lines{f, f.Close}, nil
}

// endLine adds a line end that an earlier run could not write.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

func (l *lines) write(r frontier.Record) error {
	var b strings.Builder
	if err := jsontext.NewEncoder(&b).Encode(r); err != nil {
		return err
	}
	if _, err := io.WriteString(l.w, b.String()); err != nil {
		return cli.OutputError(err)
	}
	return nil
}
