package secure

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	// MaxFileBytes is the maximum size of a file of settings, tokens or certificates. A bundle of all
	// public authorities has 250 KB, a file with 100,000 tokens 11 MB.
	MaxFileBytes = 16 << 20
	// pipeTime is how long the writer of a pipe may take.
	pipeTime = 5 * time.Second
)

// ReadFile is [os.ReadFile] for files that a running service reads again. It returns an error for one of
// more than [MaxFileBytes], such as a device, and does not wait for a pipe without a writer.
func ReadFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()                // it was only read
	_ = f.SetReadDeadline(time.Now().Add(pipeTime)) // files have none, and do not wait
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(text) > MaxFileBytes {
		err = fmt.Errorf("%s: has more than %d MiB", name, MaxFileBytes>>20)
	}
	if info, statErr := f.Stat(); err == nil && len(text) == 0 && (statErr != nil || !info.Mode().IsRegular()) {
		err = fmt.Errorf("%s: is no file, and nothing is written to it", name) // an empty file may mean that nothing is configured
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}
