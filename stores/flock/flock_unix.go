//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Supported reports whether this system has locks.
const Supported = true

// ErrLocked is the error of [Lock] if the file is already locked.
const ErrLocked = syscall.EWOULDBLOCK

// Lock locks a file until it is closed. It does not wait.
func Lock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = conn.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	return errors.Join(err, locked)
}
