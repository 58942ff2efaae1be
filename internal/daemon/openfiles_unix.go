//go:build unix

package daemon

import "syscall"

// OpenFiles returns the limit of this process. Go has raised it to the hard limit.
func OpenFiles() FileLimit {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return UnlimitedFiles
	}
	return FileLimit(min(uint64(limit.Cur), uint64(UnlimitedFiles))) //nolint:unconvert,gosec // Cur is signed on some systems; the minimum fits
}
