//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package stores

import (
	"errors"
	"os"
)

const canLock = false

var errLocked = errors.New("locked by another process")

func lock(*os.File) error { return nil }
