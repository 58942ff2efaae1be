//go:build unix

package openfiles

import "syscall"

// Read returns the limit of this process. Go has raised it to the hard limit.
func Read() Limit {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return Unlimited
	}
	return Limit(min(uint64(limit.Cur), uint64(Unlimited))) //nolint:unconvert,gosec // Cur is signed on some systems; the minimum fits
}
