package rig

import (
	"strings"
	"testing"
)

// TestCgroupFiles reads both versions' files as kernels write them.
func TestCgroupFiles(t *testing.T) {
	for _, row := range []struct {
		name  string
		names files
		texts map[string]string
	}{
		{"version 1", version1, map[string]string{
			"memory.usage_in_bytes": "7000\n", "memory.stat": "cache 1\nrss 2\ntotal_cache 3000\ntotal_rss 2\n",
			"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		}},
		{"version 2", version2, map[string]string{
			"memory.current": "7000\n", "memory.stat": "anon 4000\nfile 3000\nfile_mapped 1\n",
			"memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n",
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := &Cgroup{files: row.names, dir: t.TempDir()}
			for name, text := range row.texts {
				if err := g.write(name, text); err != nil {
					t.Fatal(err)
				}
			}
			if used, err := g.Used(); used != 4000 || err != nil {
				t.Errorf("used = %d, %v, want 4000", used, err)
			}
			if kills, err := g.Kills(); kills != 2 || err != nil {
				t.Errorf("kills = %d, %v, want 2", kills, err)
			}
		})
	}
}

// TestParseMetrics finds series by their labels, and their sum by the name.
func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader("# HELP a b\n# TYPE a gauge\na{kind=\"x y\"} 2\na{kind=\"z\"} 3\nb 1e+06\n"))
	if err != nil || got["a"] != 5 || got["b"] != 1e6 || got[`a{kind="z"}`] != 3 || len(got) != 4 {
		t.Errorf("got %v, %v, want a 5, its two series, and b 1e6", got, err)
	}
}
