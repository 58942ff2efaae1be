package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"fetchd/test/bench/process"
)

// CPU returns the CPU time that all processes of the server have used since it started. One that ends during the call may be
// counted twice.
func (s *Server) CPU() (time.Duration, error) {
	children, err := s.children()
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, pid := range append(children, s.pid) {
		used, err := process.CPU(pid)
		if err != nil && pid == s.pid {
			return 0, err
		}
		total += used // zero if it has ended
	}
	// Fields 16 and 17 of proc(5), after the name, are the time of children that have ended, in hundredths of a second.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	for _, at := range []int{13, 14} {
		ticks, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ticks) * 10 * time.Millisecond
	}
	return total, nil
}
