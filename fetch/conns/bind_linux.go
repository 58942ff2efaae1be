package conns

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// bind binds a socket to a network interface, unless its name is empty. The kernel chooses the port of a source
// address when it connects, so that one port serves many origins.
func bind(raw syscall.RawConn, device string) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) //nolint:gosec // a descriptor is small
		if device != "" {
			failed = os.NewSyscallError("interface", unix.BindToDevice(int(fd), device)) //nolint:gosec // a descriptor is small
		}
	})
	if err != nil {
		return err
	}
	return failed
}
