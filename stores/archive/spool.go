package archive

import (
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"sync"

	"fetchd/internal/budget"
)

const (
	smallSize = 4 << 10
	largeSize = 64 << 10
)

type (
	small [2 * smallSize]byte // of both directions
	large [largeSize]byte
)

var (
	smalls = sync.Pool{New: func() any { return new(small) }}
	larges = sync.Pool{New: func() any { return new(large) }}
)

// spool holds the bytes of one direction. The last ones, up to 64 KiB, are in memory, and those
// before them in a file.
type spool struct {
	small []byte // of Capture.small; nil: nothing was written
	large *large // replaces small
	n     int    // bytes in it
	file  *os.File
	filed int64 // bytes in file
}

func (s *spool) size() int64 { return s.filed + int64(s.n) }

// memory returns what the last bytes are in.
func (s *spool) memory() []byte {
	if s.large != nil {
		return s.large[:]
	}
	return s.small
}

func (s *spool) write(c *Capture, p []byte) error {
	for len(p) > 0 {
		if s.n == len(s.memory()) {
			if err := s.extend(c, len(p)); err != nil {
				return err
			}
		}
		n := copy(s.memory()[s.n:], p)
		s.n += n
		p = p[n:]
	}
	return nil
}

// extend makes space for n more bytes, or some of them.
func (s *spool) extend(c *Capture, n int) error {
	switch {
	case s.large != nil:
		return s.flush(c)
	case s.small == nil && n <= smallSize:
		return c.giveSmall(s)
	}
	if !c.memory.Grow(budget.Body, largeSize) {
		return budget.ErrRefused
	}
	s.large, _ = larges.Get().(*large)
	copy(s.large[:], s.small[:s.n])
	return nil
}

// giveSmall gives a spool its part of the memory for short messages.
func (c *Capture) giveSmall(s *spool) error {
	if c.small == nil {
		if !c.memory.Grow(budget.Body, int64(len(c.small))) {
			return budget.ErrRefused
		}
		c.small, _ = smalls.Get().(*small)
	}
	s.small = c.small[:smallSize]
	if s == &c.received {
		s.small = c.small[smallSize:]
	}
	return nil
}

// flush moves what is in memory to the file.
func (s *spool) flush(c *Capture) error {
	if err := c.reserve(largeSize); err != nil {
		return err
	}
	if s.file == nil {
		f, err := createSpool(c.archive.config.Dir)
		if err != nil {
			return c.archive.fail("create temporary file", err)
		}
		s.file = f
	}
	if _, err := s.file.Write(s.memory()); err != nil {
		return c.archive.fail("write temporary file", err)
	}
	s.filed += largeSize
	s.n = 0
	return nil
}

// reserve charges the caller for n more bytes in temporary files.
func (c *Capture) reserve(n int64) error {
	a := c.archive
	if c.disk == nil {
		c.disk = a.spools.Lease(c.memory.Caller())
	}
	if c.disk.Grow(budget.Body, n) {
		return nil
	}
	err := errShare
	if a.isFull() {
		err = errFull
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Errors++
	return a.refusal(ReasonFull, err)
}

// free releases everything.
func (s *spool) free(c *Capture) {
	if s.large != nil {
		larges.Put(s.large)
		c.memory.Shrink(budget.Body, largeSize)
	}
	if s.file != nil {
		_ = s.file.Close()           // it is not read again
		_ = os.Remove(s.file.Name()) // if createSpool could not
	}
	*s = spool{}
}

// section reads a part of a spool.
type section struct {
	spool   *spool
	at, end int64
}

// Read implements io.Reader.
func (r *section) Read(p []byte) (int, error) {
	if r.at >= r.end {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.end-r.at)]
	n, err := 0, error(nil)
	if s := r.spool; r.at < s.filed {
		n, err = s.file.ReadAt(p[:min(int64(len(p)), s.filed-r.at)], r.at)
	} else {
		n = copy(p, s.memory()[r.at-s.filed:s.n])
	}
	r.at += int64(n)
	if n > 0 {
		return n, nil
	}
	return 0, err
}

const spoolPrefix = ".fetchd-spool-"

// createSpool creates a temporary file, and removes its name where the system allows it: a process
// that dies leaves none there.
func createSpool(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, spoolPrefix+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_ = os.Remove(f.Name())
	}
	return f, err
}
