package main

import (
	"bufio"
	"io"

	"fetchd/internal/cli"
	"fetchd/internal/wholefile"
)

// output is the destination of an export. A regular file gets its name when it is complete.
type output struct {
	*bufio.Writer
	file *wholefile.File // nil for standard output
}

// openOutput opens a file, or standard output for "" and "-". It writes directly to a device or a
// pipe.
func openOutput(name string, stdout io.Writer) (*output, error) {
	if name == "" || name == "-" {
		return &output{Writer: bufio.NewWriterSize(stdout, 64<<10)}, nil
	}
	file, err := wholefile.Create(name)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	return &output{bufio.NewWriterSize(file, 64<<10), file}, nil
}

// keep writes the rest, and gives the file its name.
func (o *output) keep() error {
	err := o.Flush()
	if err == nil && o.file != nil {
		err = o.file.Keep()
	}
	if err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// discard deletes a file that was not kept.
func (o *output) discard() {
	if o.file != nil {
		o.file.Discard()
	}
}
