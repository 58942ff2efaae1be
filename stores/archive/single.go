package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fetchd/stores/flock"
)

// openSingle opens the only file of an archive, which may have records.
func (c *Config) openSingle() (*file, error) {
	path := c.File
	f := &file{name: filepath.Base(path), path: path, created: time.Now()}
	var err error
	f.file, err = os.OpenFile(path+openEnd, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.file, err = c.openWhole()
	case err == nil:
		err = continueFile(f.file, path)
	}
	if err == nil {
		f.size, err = f.file.Seek(0, io.SeekEnd)
		f.kept = f.size > 0
	}
	if err != nil && f.file != nil {
		_ = f.file.Close()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// continueFile locks a file that a process has left, and cuts it to its last whole record.
func continueFile(f *os.File, path string) error {
	if err := lockOpen(f, path+openEnd); err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s and %s%s both exist: move one of them away", path, path, openEnd)
	}
	_, _, err := cut(context.Background(), f, path)
	return err
}

func lockOpen(f *os.File, path string) error {
	if errors.Is(flock.Lock(f), flock.ErrLocked) || !flock.Holds(path, f) {
		return fmt.Errorf("another process writes to %s", path)
	}
	return nil
}

// openWhole opens a whole file, or a new one, under the name of an open one.
func (c *Config) openWhole() (*os.File, error) {
	path := c.File
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = c.newFile(path + openEnd); err != nil {
			return nil, err
		}
		return f, lockOpen(f, path+openEnd)
	}
	if err != nil {
		return nil, err
	}
	if err := lockOpen(f, path); err != nil {
		return f, err
	}
	if err := isWarc(f, path); err != nil {
		return f, err
	}
	if flock.Supported {
		return f, os.Rename(path, path+openEnd)
	}
	_ = f.Close() // Windows does not rename open files
	if err := os.Rename(path, path+openEnd); err != nil {
		return nil, err
	}
	return os.OpenFile(path+openEnd, os.O_RDWR, 0)
}

// isWarc returns an error if a file does not look like one to which records can be appended. It
// reads the first bytes only: a file can be large.
func isWarc(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	magic := []byte("WARC/1.")
	if strings.HasSuffix(path, ".gz") {
		magic = []byte{0x1f, 0x8b}
	}
	start := make([]byte, len(magic))
	if _, err := f.ReadAt(start, 0); info.Size() > 0 && (err != nil || !bytes.Equal(start, magic)) {
		return fmt.Errorf("%s is not a WARC file of this kind: records cannot be appended to it", path)
	}
	return nil
}
