package frontier

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fetchd/frontier/store"
	"fetchd/test/need"
)

// TestTakeOver checks that a worker that starts takes back the URLs of workers that are gone, and of no others.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	self := processOf(os.Getpid())
	if self == "" {
		need.Missing(t, "run it on Linux", "the system does not describe processes")
	}
	child := exec.Command("cat") //nolint:noctx // it ends with its input
	in, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	gone := processOf(child.Process.Pid)
	if isGone(gone) {
		t.Error("a process that runs is gone")
	}
	_ = in.Close()   // it ends
	_ = child.Wait() // as above
	fields := strings.Fields(self)
	with := func(field int, text string) string {
		all := strings.Fields(gone)
		all[field] = text
		return strings.Join(all, " ")
	}
	for _, row := range []struct {
		name, worker, process string
		taken                 bool
	}{
		{"killed", "h/2", gone, true},
		{"its number was given to another process", "h/2", strings.Join(append(fields[:3:3], "1"), " "), true},
		{"it runs", "h/2", self, false},
		{"another machine", "h/2", with(0, "other"), false},
		{"another container", "h/2", with(1, "pid:[1]"), false},
		{"the same name", "h/1", with(1, "pid:[1]"), true},
		{"the same name, unknown process", "h/1", "", true},
		{"unknown process", "h/2", "", false},
		{"not a process", "h/2", with(2, "-1"), false},
		{"not a description", "h/2", "a b", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, filepath.Join(t.TempDir(), "frontier.db"), time.Millisecond)
			_, err := s.Put(t.Context(), store.Entries("http://a.test/"), store.Limits{})
			must(t, err)
			claims, err := s.Claim(t.Context(), store.ClaimParams{Worker: row.worker, Limit: 1, Lease: time.Hour})
			if err != nil || len(claims) != 1 {
				t.Fatalf("claims %v, %v", claims, err)
			}
			must(t, s.WorkerSeen(t.Context(), row.worker, row.process, true))
			w := &Worker{store: s, config: Config{Name: "h/1"}, reporter: reporter{logger: slog.New(slog.DiscardHandler), metrics: NewMetrics(prometheus.NewRegistry())}}
			w.takeOver(t.Context())
			all, err := s.Workers(t.Context())
			must(t, err)
			held := int64(0)
			for _, other := range all {
				held += other.Claims
			}
			if want := map[bool]int64{false: 1, true: 0}[row.taken]; held != want {
				t.Errorf("%d URLs are held, want %d", held, want)
			}
		})
	}
}
