package frontier

import (
	"bytes"
	"io"
	"os"

	"fetchd/client"
)

// spool keeps the beginning of a body, for discovery, until its outcome is known: the media type, and
// the URL that links are relative to. A short body comes with its outcome. A longer one is in a file
// without a name, which ends with the process.
type spool struct {
	limit int64 // bytes to keep
	size  int64 // of the body so far
	file  *os.File
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	n := min(int64(len(p)), max(0, s.limit-s.size))
	if n > 0 {
		if err := s.open(); err != nil {
			return 0, err
		}
		if _, err := s.file.WriteAt(p[:n], s.size); err != nil {
			return 0, err
		}
	}
	s.size += int64(len(p))
	return len(p), nil
}

func (s *spool) open() error {
	if s.file != nil {
		return nil
	}
	f, err := os.CreateTemp("", "frontier-")
	if err != nil {
		return err
	}
	s.file = f
	return os.Remove(f.Name())
}

// Truncate implements client.BodyWriter.
func (s *spool) Truncate(size int64) error {
	s.size = size
	return nil
}

// reader returns the beginning of the body, of which last was not written.
func (s *spool) reader(last []byte) (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(last), nil
	}
	if _, err := s.Write(last); err != nil {
		return nil, err
	}
	return io.NewSectionReader(s.file, 0, min(s.size, s.limit)), nil
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close() // nothing is lost
	}
}

// writers writes a body to several places.
type writers []client.BodyWriter

// Write implements io.Writer.
func (w writers) Write(p []byte) (int, error) {
	for _, to := range w {
		if _, err := to.Write(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Truncate implements client.BodyWriter.
func (w writers) Truncate(size int64) error {
	for _, to := range w {
		if err := to.Truncate(size); err != nil {
			return err
		}
	}
	return nil
}
