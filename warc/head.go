package warc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits are limits on the head of a record that is read, after decompression. A Writer writes no
// head that exceeds the defaults.
type Limits struct {
	// Line is the maximum length of a line, with its end. The default is 64 KiB.
	Line int
	// Head is the maximum length of the head. The default is 256 KiB.
	Head int
	// Fields is the maximum number of fields. The default is 1024.
	Fields int
}

var defaultLimits = Limits{Line: 64 << 10, Head: 256 << 10, Fields: 1024}

func (l Limits) withDefaults() Limits {
	if l.Line <= 0 {
		l.Line = defaultLimits.Line
	}
	if l.Head <= 0 {
		l.Head = defaultLimits.Head
	}
	if l.Fields <= 0 {
		l.Fields = defaultLimits.Fields
	}
	return l
}

// headParser reads named fields.
type headParser struct {
	in     *bufio.Reader
	limits Limits
	// lastLine accepts the end of the input in place of an empty line.
	lastLine bool

	line     []byte // the current line, without its end
	long     []byte // the memory of a line that in cannot hold
	size     int    // bytes read
	value    []byte // the value of the last field: further lines are appended
	fields   []Field
	problems []error
}

// reset prepares the parser for another head. The memory of lines is kept.
func (p *headParser) reset() {
	p.size, p.value, p.fields, p.problems = 0, p.value[:0], nil, nil
}

// parse reads fields up to the empty line.
func (p *headParser) parse() error {
	for {
		err := p.readLine()
		if errors.Is(err, io.EOF) && p.lastLine {
			break
		}
		if err != nil {
			return err
		}
		if len(p.line) == 0 {
			break
		}
		if err := p.field(); err != nil {
			return err
		}
	}
	p.endField()
	return nil
}

// field adds the current line to the fields.
func (p *headParser) field() error {
	if p.line[0] == ' ' || p.line[0] == '\t' {
		if len(p.fields) == 0 {
			return fmt.Errorf("%w: the first field starts with a space", ErrFormat)
		}
		p.value = append(append(p.value, ' '), bytes.Trim(p.line, " \t")...)
		return nil
	}
	p.endField()
	name, value, ok := bytes.Cut(p.line, []byte(":"))
	if !ok {
		return fmt.Errorf("%w: a line of the head is not a field", ErrFormat)
	}
	if len(p.fields) == p.limits.Fields {
		return fmt.Errorf("%w: the head has more than %d fields", ErrLimit, p.limits.Fields)
	}
	p.fields = append(p.fields, Field{Name: string(name)})
	p.value = append(p.value, value...)
	return nil
}

// endField gives the last field its value.
func (p *headParser) endField() {
	if len(p.fields) == 0 {
		return
	}
	f := &p.fields[len(p.fields)-1]
	f.Value = strings.Trim(string(p.value), " \t")
	p.value = p.value[:0]
	if err := f.check(); err != nil {
		p.problems = append(p.problems, err)
	}
}

// readLine reads the next line. It returns io.EOF only if there is no byte of it.
func (p *headParser) readLine() error {
	p.long = p.long[:0]
	for {
		part, err := p.in.ReadSlice('\n')
		p.size += len(part)
		switch {
		case len(p.long)+len(part) > p.limits.Line:
			return fmt.Errorf("%w: a line of the head is longer than %d bytes", ErrLimit, p.limits.Line)
		case p.size > p.limits.Head:
			return fmt.Errorf("%w: the head is longer than %d bytes", ErrLimit, p.limits.Head)
		case errors.Is(err, bufio.ErrBufferFull):
			p.long = append(p.long, part...)
			continue
		case errors.Is(err, io.EOF) && len(p.long)+len(part) > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if len(p.long) > 0 {
			p.long = append(p.long, part...)
			part = p.long
		}
		line, ok := bytes.CutSuffix(part, []byte("\r\n"))
		if !ok {
			return fmt.Errorf("%w: a line of the head does not end with CR LF", ErrFormat)
		}
		p.line = line
		return nil
	}
}
