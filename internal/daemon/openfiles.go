package daemon

import "math"

// FileLimit is the maximum number of files and sockets that a process may have open: its descriptors.
type FileLimit int

// UnlimitedFiles stands for a limit that is not known.
const UnlimitedFiles = FileLimit(math.MaxInt32)

const (
	// reserve is for listeners, the log, certificates, files that are read again, and the runtime.
	reserve = 64
	// ofFetch is what a fetch uses: a connection, and a lookup, a second address or a file.
	ofFetch = 2
)

// free returns what is left to divide. Below 128 files it is more than there is, because a service with
// one connection is of no use.
func (l FileLimit) free() int { return max(int(l)-reserve, 64) }

// Fetches returns the maximum number of fetches in flight. They use half of what is free.
func (l FileLimit) Fetches() int { return l.free() / 2 / ofFetch }

// Connections returns the maximum number of connections of each of two ports. They use a quarter.
func (l FileLimit) Connections() int { return l.free() / 4 / 2 }

// Idle returns the maximum number of idle connections to origins. They use a quarter.
func (l FileLimit) Idle() int { return l.free() / 4 }

// FilesNeeded returns the limit that so many fetches, connections of callers on all ports and idle connections
// need.
func FilesNeeded(fetches, connections, idle int) int {
	return reserve + ofFetch*fetches + connections + idle
}
