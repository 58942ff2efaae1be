package daemon_test

import (
	"testing"

	"fetchd/internal/daemon"
)

// TestShares checks that the shares of a limit fit into it, and that the usual limit of a service does
// not reduce the defaults of fetchd.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit                      daemon.FileLimit
		fetches, connections, idle int // -1: at least the default
	}{
		{0, 16, 8, 16},
		{64, 16, 8, 16},
		{128, 16, 8, 16},
		{256, 48, 24, 48},
		{1024, 240, 120, 240},
		{4096, 1008, 504, 1008},
		{65_536, -1, -1, -1},
		{daemon.UnlimitedFiles, -1, -1, -1},
	} {
		got := [3]int{row.limit.Fetches(), row.limit.Connections(), row.limit.Idle()}
		want := [3]int{row.fetches, row.connections, row.idle}
		if row.fetches < 0 {
			if got[0] < 10_000 || got[1] < 4096 || got[2] < 1024 {
				t.Errorf("%d files: %v, want at least the defaults", row.limit, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%d files: %v, want %v", row.limit, got, want)
		}
		if need := daemon.FilesNeeded(got[0], 2*got[1], got[2]); need > max(int(row.limit), 128) {
			t.Errorf("%d files: the shares need %d", row.limit, need)
		}
	}
	if daemon.OpenFiles() < 16 {
		t.Errorf("this process may have %d files open", daemon.OpenFiles())
	}
}
