//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package stores

import (
	"errors"
	"os"
	"syscall"
)

const canLock = true

// errLocked is the error of lock if another process has locked the file.
const errLocked = syscall.EWOULDBLOCK

// lock locks a file until it is closed.
func lock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = conn.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	return errors.Join(err, locked)
}
