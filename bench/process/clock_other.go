//go:build !linux

package process

import (
	"errors"
	"syscall"
	"time"
)

var errLinux = errors.New("the clocks and the memory of another process are read as Linux tells them: run it there")

// CPU is an error here.
func CPU(int) (time.Duration, error) { return 0, errLinux }

// Resident is an error here.
func Resident(int) (now, peak int64, err error) { return 0, 0, errLinux }

// Files is an error here.
func Files() (uint64, error) { return 0, errLinux }

// ForgetPeak is an error here.
func ForgetPeak(int) error { return errLinux }

func diesWithParent() *syscall.SysProcAttr { return nil }
