//go:build unix && !solaris && !illumos && !aix

package download

import (
	"os"
	"syscall"
)

// lock prevents other runs from using a part until it is closed or this process ends.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errBusy
	}
	return nil
}
