package main

import (
	"fmt"
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/internal/daemon"
)

// TestCapacity checks what follows from the limit of open files, and which settings exceed it.
func TestCapacity(t *testing.T) {
	const gib = 1 << 30
	for _, row := range []struct {
		name                       string
		args                       []string
		files                      daemon.FileLimit
		fetches, connections, idle int
		exceeding                  []string // parts of each warning
	}{
		{"no limit", nil, daemon.UnlimitedFiles, 10_000, 4096, 4096, nil},
		{"that of the shipped files", nil, 65_536, 10_000, 4096, 4096, nil},
		{"1,024 files", nil, 1024, 240, 120, 240, nil},
		{"settings within it", []string{"--max-fetches=100", "--max-connections=50"}, 1024, 100, 50, 240, nil},
		{"more fetches, fewer connections", []string{"--max-fetches=300", "--max-connections=10"}, 1024, 300, 10, 240, nil},
		{"too many fetches", []string{"--max-fetches=5000"}, 1024, 5000, 120, 240,
			[]string{"--max-fetches=5000: needs more files and sockets than the 1024 that the process may have open: raise that limit to 10544 (ulimit -n, LimitNOFILE of systemd), or give at most 240"}},
		{"too many connections", []string{"--max-connections=1000"}, 1024, 240, 1000, 240, []string{"--max-connections=1000: needs"}},
		{"too many of both", []string{"--max-fetches=241", "--max-connections=121"}, 1024, 241, 121, 240, []string{"--max-fetches=241: needs", "--max-connections=121: needs"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := parse(row.args, nil, nil)
			must(t, err)
			has := s.capacity(row.files, gib)
			if has.fetches != row.fetches || has.connections != row.connections || has.idle != row.idle {
				t.Errorf("capacity %s, want %d fetches, %d connections, %d idle", &has, row.fetches, row.connections, row.idle)
			}
			all := s.exceeding(&has, 2)
			for i, want := range row.exceeding {
				if len(all) != len(row.exceeding) || !strings.HasPrefix(all[i][0]+": "+all[i][1], want) {
					t.Errorf("exceeding %q, want %q", all, row.exceeding)
				}
			}
			if len(row.exceeding) == 0 && len(all) > 0 {
				t.Errorf("exceeding %q, want nothing", all)
			}
		})
	}
}

// TestConfigPrintsCapacity checks that "fetchd config" says what is in effect, and warns.
func TestConfigPrintsCapacity(t *testing.T) {
	most := int(daemon.OpenFiles())
	code, stdout, stderr := command(t, "config", "--max-fetches", fmt.Sprint(most))
	if code != cli.ExitOK || !strings.Contains(stdout, fmt.Sprintf("\n# in effect: max-fetches %d, max-connections ", most)) {
		t.Errorf("code %d, stdout %s", code, stdout)
	}
	if want := fmt.Sprintf("fetchd: --max-fetches=%d: needs more files", most); daemon.OpenFiles() < daemon.UnlimitedFiles && !strings.HasPrefix(stderr, want) {
		t.Errorf("stderr %q, want %q", stderr, want)
	}
}
