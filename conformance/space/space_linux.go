package space

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// OnOwnThread runs f on a thread that ends with it, so that f can leave the namespaces of the process. Sockets that
// f opens and programs that it starts are in those of f.
func OnOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the main thread cannot end
			OnOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// Enter moves the calling thread to a new network namespace, and replaces files of the system for it and for the
// programs that it starts. files has the contents by path; a file that the system does not have is left out.
func Enter(files map[string]string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	dir, err := os.MkdirTemp("", "space-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the mounts keep the files
	for path, text := range files {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		own := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(own, []byte(text), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(own, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("replace %s: %w", path, err)
		}
	}
	return nil
}

// OwnEverything sets loopback up and makes every address local with routes. They are not
// addresses of the interface, because the guard blocks those by another rule, and its rules
// for ranges would not be tested. Packets to the unreachable addresses are refused. It refuses to change a network that
// is in use.
func OwnEverything(unreachable ...netip.Addr) error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("interface %s is up, so this namespace is not new", i.Name)
		}
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	index := uint32(lo.Index)
	up := syscall.IfInfomsg{Index: int32(index), Flags: syscall.IFF_UP, Change: syscall.IFF_UP}
	if err := netlink(syscall.RTM_NEWLINK, up); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	for _, family := range []uint8{syscall.AF_INET, syscall.AF_INET6} {
		all := syscall.RtMsg{Family: family, Table: syscall.RT_TABLE_LOCAL, Protocol: syscall.RTPROT_BOOT,
			Scope: syscall.RT_SCOPE_HOST, Type: syscall.RTN_LOCAL}
		if err := netlink(syscall.RTM_NEWROUTE, all, syscall.RtAttr{Len: 8, Type: syscall.RTA_OIF}, index); err != nil {
			return fmt.Errorf("make family %d local: %w", family, err)
		}
	}
	for _, addr := range unreachable {
		route := syscall.RtMsg{Family: syscall.AF_INET, Dst_len: uint8(addr.BitLen()), Table: syscall.RT_TABLE_LOCAL,
			Protocol: syscall.RTPROT_BOOT, Scope: syscall.RT_SCOPE_HOST, Type: syscall.RTN_UNREACHABLE}
		if addr.Is6() {
			route.Family = syscall.AF_INET6
		}
		if err := netlink(syscall.RTM_NEWROUTE, route, syscall.RtAttr{Len: uint16(syscall.SizeofRtAttr + addr.BitLen()/8), Type: syscall.RTA_DST}, addr.AsSlice()); err != nil {
			return fmt.Errorf("make %s unreachable: %w", addr, err)
		}
	}
	return nil
}

// netlink requests one change of the network from the kernel and waits for its answer.
func netlink(kind uint16, parts ...any) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	var body []byte
	for _, part := range parts {
		if body, err = binary.Append(body, binary.NativeEndian, part); err != nil {
			return err
		}
	}
	message, err := binary.Append(nil, binary.NativeEndian, syscall.NlMsghdr{
		Len: uint32(syscall.NLMSG_HDRLEN + len(body)), Type: kind, Seq: 1,
		Flags: syscall.NLM_F_REQUEST | syscall.NLM_F_ACK | syscall.NLM_F_CREATE,
	})
	if err != nil {
		return err
	}
	if err := syscall.Sendto(fd, append(message, body...), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	said, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	if len(said) == 0 || said[0].Header.Type != syscall.NLMSG_ERROR || len(said[0].Data) < 4 {
		return errors.New("the kernel did not answer a netlink request")
	}
	if code := int32(binary.NativeEndian.Uint32(said[0].Data)); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}

// Opened returns how many TCP connections the network namespace of the calling thread has opened, to any address
// and port, answered or not.
func Opened() (int, error) {
	table, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "ActiveOpens" && i < len(fields) {
				return strconv.Atoi(fields[i])
			}
		}
	}
	return 0, errors.New("the kernel does not count ActiveOpens")
}
