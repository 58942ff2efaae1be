package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// TestRecordsLost checks that a command fails if its records cannot be kept.
func TestRecordsLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		lost       bool
		code, want int
	}{
		{"kept", false, cli.ExitOK, cli.ExitOK},
		{"kept after a failure", false, cli.ExitTransient, cli.ExitTransient},
		{"lost", true, cli.ExitOK, cli.ExitOutput},
		{"lost after a failure", true, cli.ExitTransient, cli.ExitTransient},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), filepath.Join(t.TempDir(), "dir")
			clitest.Must(t, os.Mkdir(dir, 0o700))
			set, err := OpenWARC(filepath.Join(dir, "a.warc"))
			clitest.Must(t, err)
			svc, err := Connection{}.Connect(set)
			clitest.Must(t, err)
			_, err = svc.FetchUnary(t.Context(), &pb.FetchRequest{Url: o.URL("http", "/s/page/200"), RecordPolicy: &pb.RecordPolicy{Store: WARCStore}})
			svc.Close()
			clitest.Must(t, err)
			if tt.lost {
				clitest.Must(t, os.RemoveAll(dir))
			}
			var printed strings.Builder
			p := &cli.Program{Name: "fetchctl", Streams: cli.Streams{Err: &printed}, Clean: cli.Escape}
			if got := CloseStores(t.Context(), p, set, tt.code); got != tt.want || (printed.Len() > 0) != tt.lost {
				t.Errorf("exit code %d, want %d; printed %q", got, tt.want, &printed)
			}
		})
	}
}
