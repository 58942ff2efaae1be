//go:build !linux

package process

import (
	"errors"
	"syscall"
	"time"
)

var errLinux = errors.New("CPU time and memory of a process can be read only on Linux")

// CPU returns an error.
func CPU(int) (time.Duration, error) { return 0, errLinux }

// Resident returns an error.
func Resident(int) (now, peak int64, err error) { return 0, 0, errLinux }

// Files returns an error.
func Files() (uint64, error) { return 0, errLinux }

// ForgetPeak returns an error.
func ForgetPeak(int) error { return errLinux }

func diesWithParent() *syscall.SysProcAttr { return nil }
