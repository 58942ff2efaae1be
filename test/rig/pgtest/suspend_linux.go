package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Suspend stops every process of the server with SIGSTOP. Connections stay, and nothing is answered.
func (s *Server) Suspend() error {
	// The first process first: then it makes no others.
	if err := syscall.Kill(s.pid, syscall.SIGSTOP); err != nil {
		return err
	}
	s.suspended = true
	return s.signalChildren(syscall.SIGSTOP)
}

// Resume continues the server after Suspend.
func (s *Server) Resume() error {
	s.suspended = false
	if err := s.signalChildren(syscall.SIGCONT); err != nil {
		return err
	}
	return syscall.Kill(s.pid, syscall.SIGCONT)
}

// signalChildren signals the processes that the first one has made. Each is in its own process group.
func (s *Server) signalChildren(signal syscall.Signal) error {
	children, err := s.children()
	for _, pid := range children {
		_ = syscall.Kill(pid, signal) // it may have ended
	}
	return err
}

func (s *Server) children() (pids []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.pid))
	if err != nil {
		return nil, err
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
