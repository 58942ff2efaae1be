package worker

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
		name    string
		files   daemon.FileLimit
		open    int
		warning string // empty: none
	}{
		{"no limit", daemon.UnlimitedFiles, 100_000, ""},
		{"that of the shipped unit", 65_536, 256, ""},
		{"1,024 files", 1024, 256, ""},
		{"1,024 files, and many fetches", 1024, 500, "setting=\"--open=500\" remedy=\"raise the limit of 1024 files and sockets to 1304 (ulimit -n, LimitNOFILE of systemd), or give at most 360\""},
		{"256 files", 256, 256, "or give at most 72"},
		{"hardly any", 16, 1, "or give at most 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			warnFiles(slog.New(slog.NewTextHandler(&log, nil)), row.files, row.open, min(1024, row.files.Idle()))
			if got := log.String(); (row.warning == "") != (got == "") || !strings.Contains(got, row.warning) {
				t.Errorf("log %q, want %q", got, row.warning)
			}
		})
	}
}
