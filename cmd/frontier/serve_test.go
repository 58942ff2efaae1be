package main

import (
	"testing"

	"fetchd/internal/daemon"
)

func TestMaxConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		files daemon.FileLimit
		want  int
	}{
		{"no limit", daemon.UnlimitedFiles, 2048},
		{"that of the shipped unit", 65_536, 2048},
		{"1,024 files", 1024, 476},
		{"256 files", 256, 92},
		{"hardly any", 16, 16},
	} {
		if got := maxConnections(row.files, 8); got != row.want {
			t.Errorf("%s: %d connections, want %d", row.name, got, row.want)
		}
	}
}
