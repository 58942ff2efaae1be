package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"fetchd/internal/daemon"
)

// TestFiles checks what follows from the limit of open files.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		files       daemon.FileLimit
		open        int
		connections int
		warning     string // empty: none
	}{
		{"no limit", daemon.UnlimitedFiles, 100_000, 2048, ""},
		{"that of the shipped unit", 65_536, 256, 2048, ""},
		{"1,024 files", 1024, 256, 476, ""},
		{"1,024 files, and many fetches", 1024, 500, 476, "setting=\"--open=500\" remedy=\"raise the limit of 1024 files and sockets to 1304 (ulimit -n, LimitNOFILE of systemd), or give at most 360\""},
		{"256 files", 256, 256, 92, "or give at most 72"},
		{"hardly any", 16, 1, 16, "or give at most 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			warnFiles(slog.New(slog.NewTextHandler(&log, nil)), row.files, row.open, min(1024, row.files.Idle()))
			if got := log.String(); (row.warning == "") != (got == "") || !strings.Contains(got, row.warning) {
				t.Errorf("log %q, want %q", got, row.warning)
			}
			if got := maxConnections(row.files, 8); got != row.connections {
				t.Errorf("%d connections, want %d", got, row.connections)
			}
		})
	}
}
