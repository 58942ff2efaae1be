package get

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// A run that is interrupted draws what there was, and leaves no body.
func TestTraceInterrupted(t *testing.T) {
	t.Parallel()
	o, dir := rig.Origin(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errOut, ended := &listened{of: "→", heard: make(chan struct{})}, make(chan int, 1)
	go func() {
		ended <- fetchctl(ctx, []string{"get", "-v", "--trace", "-o", filepath.Join(dir, "body"), o.URL("http", "/r/cut-off/302/1/silent")},
			func(string) string { return "" }, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: errOut})
	}()
	if _, err := o.Await(t.Context(), "cut-off", 2); err != nil {
		t.Fatal(err)
	}
	select { // the origin may see the second request before the caller hears of the redirect
	case <-errOut.heard:
	case code := <-ended:
		t.Fatalf("exit status %d, and no redirect was told\n%s", code, errOut)
	}
	cancel()
	code := <-ended
	if err := errOut.String(); code != cli.ExitInterrupted || !strings.Contains(err, "no outcome") || !strings.Contains(err, "  2 GET --- /s/cut-off/silent") {
		t.Errorf("exit status %d, want %d and a trace of two hops\n%s", code, cli.ExitInterrupted, err)
	}
	clitest.Only(t, dir)
}

// listened is what a run tells. Once that has the text in it, heard is closed.
type listened struct {
	strings.Builder
	of    string
	heard chan struct{}
	once  sync.Once
}

func (l *listened) Write(p []byte) (int, error) {
	n, err := l.Builder.Write(p)
	if strings.Contains(l.String(), l.of) {
		l.once.Do(func() { close(l.heard) })
	}
	return n, err
}

func TestIsUTF8(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"none", nil, false},
		{"LANG", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"LANG without dash", map[string]string{"LANG": "C.utf8"}, true},
		{"LANG of another", map[string]string{"LANG": "de_DE.ISO-8859-1"}, false},
		{"LC_ALL first", map[string]string{"LC_ALL": "C", "LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}, false},
		{"LC_CTYPE before LANG", map[string]string{"LC_CTYPE": "C.UTF-8", "LANG": "C"}, true},
	} {
		if got := isUTF8(func(name string) string { return row.env[name] }); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
