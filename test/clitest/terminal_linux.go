package clitest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// OpenTerminal opens a pseudo-terminal with a number of columns. What a program writes to terminal is
// read from screen, by [Seen]. The caller closes both.
func OpenTerminal(columns uint16) (screen, terminal *os.File, err error) {
	screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	var unlocked, number int32
	err = errors.Join(ioctl(screen, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)), ioctl(screen, syscall.TIOCGPTN, unsafe.Pointer(&number)))
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	size := [4]uint16{24, columns}
	if err == nil {
		err = ioctl(terminal, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	}
	if err != nil {
		return nil, nil, errors.Join(err, screen.Close())
	}
	return screen, terminal, nil
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		return fmt.Errorf("ioctl %x of %s: %w", request, f.Name(), errno)
	}
	return nil
}

// Seen returns everything that was written to the terminal of a screen. It returns when no program has
// the terminal open any more, so the caller closes its own first.
func Seen(screen *os.File) string {
	var text strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := screen.Read(b)
		text.Write(b[:n])
		if err != nil { // EIO is the end
			return text.String()
		}
	}
}
