package main

import (
	"testing"

	"fetchd/internal/daemon"
)

func TestMaxConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		files  daemon.FileLimit
		memory int64
		want   int
	}{
		{"no limit", daemon.UnlimitedFiles, 1 << 30, 2048},
		{"that of the shipped unit", 65_536, 214 << 20, 1141},
		{"the same on a small machine", 65_536, 99 << 20, 528},
		{"1,024 files", 1024, 1 << 30, 476},
		{"256 files", 256, 1 << 30, 92},
		{"hardly any", 16, 1 << 30, 16},
	} {
		if got := maxConnections(row.files, 8, row.memory); got != row.want {
			t.Errorf("%s: %d connections, want %d", row.name, got, row.want)
		}
	}
}
