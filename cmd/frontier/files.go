package main

import (
	"fmt"
	"log/slog"

	"fetchd/frontier/api"
	"fetchd/internal/daemon"
)

// warnFiles logs if so many fetches need more files and sockets than this process may have open.
func warnFiles(logger *slog.Logger, files daemon.FileLimit, open, idle int) {
	if need := daemon.FilesNeeded(open, 0, idle); need > int(files) {
		logger.Warn("a setting needs more files than the process may have open", slog.String("setting", fmt.Sprintf("--open=%d", open)),
			slog.String("remedy", fmt.Sprintf("raise the limit of %d files and sockets to %d (ulimit -n, LimitNOFILE of systemd), or give at most %d",
				files, need, max(int(files)-daemon.FilesNeeded(0, 0, idle), 2)/2)))
	}
}

// maxConnections returns the maximum number of connections of each of the two ports of "frontier
// serve", with that many connections to the database.
func maxConnections(files daemon.FileLimit, database int) int {
	return min(max(int(files)-daemon.FilesNeeded(0, database, 0), 32)/2, api.DefaultMaxConnections)
}
