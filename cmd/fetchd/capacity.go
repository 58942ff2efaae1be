package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"

	"fetchd/fetch"
	"fetchd/internal/daemon"
	"fetchd/internal/secure"
	"fetchd/server"
)

// capacity is how much the service holds at a time, by the settings, or else by its memory and the
// files that it may open.
type capacity struct {
	files                      daemon.FileLimit
	budget                     int64 // of memory, in bytes
	fetches, connections, idle int   // connections of each port
}

func (s *settings) capacity(files daemon.FileLimit, budget int64) capacity {
	return capacity{files: files, budget: budget,
		fetches:     cmp.Or(s.MaxFetches, min(server.DefaultMaxFetches(budget), files.Fetches())),
		connections: cmp.Or(s.MaxConnections, min(server.DefaultMaxConnections(budget), files.Connections())),
		idle:        min(fetch.DefaultMaxIdle, files.Idle()),
	}
}

// attrs returns the capacity for the first log line.
func (c *capacity) attrs() []any {
	attrs := []any{slog.Int64("memory_budget", c.budget), slog.Int("max_fetches", c.fetches),
		slog.Int("max_connections", c.connections), slog.Int("max_idle_connections", c.idle)}
	if c.files < daemon.UnlimitedFiles {
		attrs = append(attrs, slog.Int("max_open_files", int(c.files)))
	}
	return attrs
}

// String returns the capacity for people.
func (c *capacity) String() string {
	files := "not limited"
	if c.files < daemon.UnlimitedFiles {
		files = fmt.Sprint(int(c.files))
	}
	return fmt.Sprintf("max-fetches %d, max-connections %d, idle connections to origins %d; memory budget %d bytes, open files %s",
		c.fetches, c.connections, c.idle, c.budget, files)
}

// limits returns the limits in the settings and the token file, and the capacity.
func (s *settings) limits(id *secure.Identity, has *capacity) server.Limits {
	l := server.Limits{MaxTotalTimeout: s.MaxTotalTimeout, MaxBodyBytes: s.MaxBodyBytes,
		MaxFetches: has.fetches, MaxFetchesPerCaller: s.MaxFetchesPerCaller}
	if s.NonIdempotentRetries == nonIdempotentForbid {
		l.NonIdempotentRetries = server.NonIdempotentForbidden
	}
	if id.Callers != nil && id.Callers.Tokens != nil {
		l.CallerMaxFetches = id.Callers.Tokens.Limits()
	}
	return l
}

// exceeding returns the settings that need more files than there are, each with its source and value, and
// the remedy.
func (s *settings) exceeding(c *capacity, ports int) [][2]string {
	need := daemon.FilesNeeded(c.fetches, ports*c.connections, c.idle)
	if need <= int(c.files) {
		return nil
	}
	var all [][2]string
	for _, row := range []struct {
		name       string
		value, fit int
	}{
		{"max-fetches", s.MaxFetches, c.files.Fetches()},
		{"max-connections", s.MaxConnections, c.files.Connections()},
	} {
		if row.value > row.fit {
			all = append(all, [2]string{s.at(row.name), fmt.Sprintf("needs more files and sockets than the %d that the process may have open: "+
				"raise that limit to %d (ulimit -n, LimitNOFILE of systemd), or give at most %d", c.files, need, row.fit)})
		}
	}
	return all
}

// warnExceeding prints the settings that need more files than there are.
func warnExceeding(w io.Writer, exceeding [][2]string) {
	for _, e := range exceeding {
		_, _ = fmt.Fprintf(w, "fetchd: %s: %s\n", e[0], e[1]) // a failed write cannot be reported
	}
}
