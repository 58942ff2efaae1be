package wacz

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// sortMemory is how many bytes of lines are sorted in memory. More go to temporary files, which are
// about as large as the lines.
const sortMemory = 32 << 20

const (
	// lineOverhead is what a line uses in memory in addition to its bytes.
	lineOverhead = 32
	// maxRuns is how many temporary files are open at once.
	maxRuns = 64
)

// sorter sorts lines. A line has no line end.
type sorter struct {
	memory int // bytes of lines to hold
	held   []string
	size   int
	runs   []*os.File // sorted
}

// add adds a line.
func (s *sorter) add(line string) error {
	s.held = append(s.held, line)
	s.size += len(line) + lineOverhead
	if s.size < s.memory {
		return nil
	}
	if err := s.spill(); err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	return nil
}

// spill moves the lines from memory to a temporary file.
func (s *sorter) spill() error {
	slices.Sort(s.held)
	err := s.run(func(emit func(string) error) error {
		for _, line := range s.held {
			if err := emit(line); err != nil {
				return err
			}
		}
		return nil
	})
	s.held, s.size = s.held[:0], 0
	if err != nil || len(s.runs) < maxRuns {
		return err
	}
	old := s.runs
	s.runs = nil
	defer closeRuns(old)
	return s.run(func(emit func(string) error) error { return merge(old, emit) })
}

// run writes lines to a new temporary file.
func (s *sorter) run(lines func(emit func(string) error) error) error {
	f, err := os.CreateTemp("", "fetchctl-sort-*")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f)
	_ = os.Remove(f.Name()) // close removes it where an open file cannot be removed
	w := bufio.NewWriterSize(f, 64<<10)
	err = lines(func(line string) error {
		_, err := w.WriteString(line + "\n")
		return err
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

// each calls f for each line in order. No line can be added after it.
func (s *sorter) each(f func(line string) error) error {
	if len(s.runs) > 0 {
		if err := s.spill(); err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
		return merge(s.runs, f)
	}
	slices.Sort(s.held)
	for _, line := range s.held {
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}

// close removes the temporary files.
func (s *sorter) close() {
	closeRuns(s.runs)
	s.runs, s.held = nil, nil
}

func closeRuns(runs []*os.File) {
	for _, f := range runs {
		_ = f.Close()
		_ = os.Remove(f.Name()) // it is already gone, except on Windows
	}
}

// merge calls emit for each line of the files in order.
func merge(runs []*os.File, emit func(string) error) error {
	type head struct {
		in   *bufio.Reader
		line string
	}
	var heads []*head
	next := func(h *head) (more bool, err error) {
		line, err := h.in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("temporary file: %w", err)
		}
		h.line = line[:len(line)-1]
		return true, nil
	}
	for _, f := range runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
		h := &head{in: bufio.NewReaderSize(f, 64<<10)}
		more, err := next(h)
		if err != nil {
			return err
		}
		if more {
			heads = append(heads, h)
		}
	}
	for len(heads) > 0 {
		least := 0
		for i, h := range heads {
			if h.line < heads[least].line {
				least = i
			}
		}
		if err := emit(heads[least].line); err != nil {
			return err
		}
		more, err := next(heads[least])
		if err != nil {
			return err
		}
		if !more {
			heads = slices.Delete(heads, least, least+1)
		}
	}
	return nil
}
