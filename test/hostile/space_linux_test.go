package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fetchd/test/need"
)

// insideVariable is set in the environment of the test inside the namespace.
const insideVariable = "FETCHD_HOSTILE_INSIDE"

// runInside runs this test again in a process with a new network namespace, and reports its
// result.
func runInside(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 { // some systems allow every user to be root in a namespace
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	all, err := cmd.CombinedOutput()
	var out strings.Builder
	for line := range strings.Lines(string(all)) {
		if word := strings.TrimSpace(line); testing.Verbose() || !strings.HasPrefix(word, "=== ") && !strings.HasPrefix(word, "--- PASS") {
			out.WriteString(line)
		}
	}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		need.Missing(t, "run it as root", "cannot create a network namespace: %v", err)
	}
	switch {
	case err != nil:
		t.Errorf("in the namespace: %v\n%s", err, &out)
	case strings.Contains(out.String(), "--- SKIP: "+t.Name()+" "):
		need.Missing(t, "run it as root", "the network namespace cannot be used:\n%s", &out)
	default:
		t.Logf("in the namespace:\n%s", &out)
	}
}

// ownEverything sets loopback up and makes every address local with routes. They are not
// addresses of the interface, because the guard blocks those by another rule, and its rules
// for ranges would not be tested. It refuses to change a network that is in use.
func ownEverything() error {
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

// opened returns how many TCP connections this namespace has opened, to any address and port,
// answered or not.
func opened(t *testing.T) int {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/snmp")
	if err != nil {
		t.Fatal(err)
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
				n, err := strconv.Atoi(fields[i])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatal("the kernel does not count ActiveOpens")
	return 0
}
