package get

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"fetchd/internal/cli"
	"fetchd/server/fetchdtest"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// writeStores writes a stores file with the store local, and returns its path and the directory of
// the store.
func writeStores(t *testing.T) (file, dir string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(t.TempDir(), "stores.yaml")
	clitest.Must(t, os.WriteFile(file, fmt.Appendf(nil, "stores: {local: {url: \"file://%s\"}}\n", dir), 0o600))
	return file, dir
}

// TestGetStoreOfServer checks that --store uses the stores of the service that --server names.
func TestGetStoreOfServer(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	file, dir := writeStores(t)
	addr := fetchdtest.Start(t, fetchdtest.Options{Origin: o, StoresFile: file}).Addr
	got := fetchctl.Run(t, "get", "--server", addr, "--store", "local", "--key", "page", o.URL("http", "/s/page/200:size=700000"))
	if got.Code != cli.ExitOK || got.Out != "" {
		t.Errorf("exit status %d, %d bytes on standard output; want 0 and none\n%s", got.Code, len(got.Out), got.Err)
	}
	if body, err := os.ReadFile(filepath.Join(dir, "page")); err != nil || !bytes.Equal(body, o.Body(700_000)) {
		t.Errorf("the object has %d bytes, %v; want the 700000 of the origin", len(body), err)
	}
	got = fetchctl.Run(t, "get", "--server", clitest.Server(t), "--store", "local", o.URL("http", "/s/never/200"))
	if got.Code != cli.ExitUsage || len(o.Requests("never")) != 0 {
		t.Errorf("a server without stores: exit status %d, want %d\n%s", got.Code, cli.ExitUsage, got.Err)
	}
}

// TestGetStoreInterrupted checks that an interrupted run leaves nothing in the store.
func TestGetStoreInterrupted(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	file, dir := writeStores(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan clitest.Result, 1)
	go func() {
		ended <- fetchctl.With(ctx, "", nil, "get", "--stores-file", file, "--store", "local", "--key", "page", o.URL("http", "/s/page/200:size=3000000,stall=1500000"))
	}()
	if _, err := o.Await(t.Context(), "page", 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := <-ended; got.Code != cli.ExitInterrupted {
		t.Errorf("exit status %d, want %d\n%s", got.Code, cli.ExitInterrupted, got.Err)
	}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s was left behind", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
