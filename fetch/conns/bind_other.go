//go:build !linux

package conns

import (
	"errors"
	"fmt"
	"syscall"
)

// bind fails if there is an interface to bind a socket to.
func bind(_ syscall.RawConn, device string) error {
	if device == "" {
		return nil
	}
	return fmt.Errorf("the interface %s: %w", device, errors.ErrUnsupported)
}
