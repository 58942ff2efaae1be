package main

import (
	"fmt"
	"io"
)

// printer writes text and keeps the first error, after which it writes nothing.
type printer struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (p *printer) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	var n int
	n, p.err = p.w.Write(b)
	return n, p.err
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
