//go:build linux

package stores

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

// TestKeys asks for objects outside of a store.
func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 2*time.Minute)
	o, s, root := newSite(t), newServer(ctx, t), t.TempDir()
	folder := directory(filepath.Join(root, "store"))
	p := start(ctx, t, o.Origin, writeStores(t, map[string]entry{"bucket": s.entry("prefix"), "folder": {URL: "file://" + string(folder), Prefix: "inner"}}), options{})
	outside := filepath.Join(root, "outside")
	plant(t, outside, filepath.Join(string(folder), "inner"))
	before := tree(t, root)
	b := body{1000, 8}
	fetch := func(store, key string) (*pb.FetchOutcome, error) {
		return p.fetch(ctx, request(o.URL("http", "/s/keys/"+b.step()), store, key))
	}
	for _, key := range []string{
		"../x", "..", ".", "/x", "x/", "a//b", "a/../b", "a/../../b", "a/..", "./x", "a/./b", "/", "//", "..\\x", "a\\..\\b", "a\x00b", "a\nb", "a\x7fb",
		strings.Repeat("k", 256), strings.Repeat("k/", 1023) + "kk", strings.Repeat("dir/", 256) + "x", ".incoming/x", ".incoming", ".INCOMING/x", "/etc/passwd", "../outside/x", "a\ufffeb",
	} {
		for _, store := range []string{"bucket", "folder"} {
			if out, err := fetch(store, key); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: key %.60q: %s, want INVALID_ARGUMENT", store, key, describe(out, err))
			}
		}
	}
	if n := len(o.Requests("keys")); n != 0 {
		t.Errorf("%d requests to the origin, want none", n)
	}
	for _, key := range []string{"out/x", "relative/x", "loop/x", "file/x", "out/deep/x"} {
		out, err := fetch("folder", key)
		if e := out.GetError(); e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_STORE_FAILURE || e.GetReason() != "store_error" {
			t.Errorf("key %q through a symbolic link: %s, want STORE_FAILURE", key, describe(out, err))
		}
	}
	out, err := fetch("folder", "file") // a link is replaced, not followed
	o.wantStored(t, out, err, "folder", "file", b)
	if text, err := os.ReadFile(filepath.Join(outside, "file")); string(text) != "untouched" || err != nil {
		t.Errorf("a file outside of the store was changed: %.20q, %v", text, err)
	}
	for _, key := range []string{"a/b", "a..b/..c", "...", "ü/€", "a b+c%2f?d#e&f=g", strings.Repeat("k", 255)} {
		for store, digest := range map[string]func() string{
			"bucket": func() string { return s.digest(ctx, "prefix/"+key) },
			"folder": func() string { return folder.digest(t, "inner/"+key) },
		} {
			out, err := fetch(store, key)
			o.wantStored(t, out, err, store, key, b)
			if got := digest(); got != o.digest(t, b) {
				t.Errorf("%s: %s: the digest is %s, want %s", store, key, got, o.digest(t, b))
			}
		}
	}
	for key := range s.objects(ctx) {
		if !strings.HasPrefix(key, "prefix/") {
			t.Errorf("the bucket has %s, which is not below the prefix", key)
		}
	}
	for _, path := range tree(t, root) {
		if !slices.Contains(before, path) && !strings.HasPrefix(path, "store/inner/") {
			t.Errorf("%s was written, which is not below the prefix", path)
		}
	}
}

// plant makes a file outside of a store, and symbolic links in its folder that lead out.
func plant(t *testing.T, outside, folder string) {
	t.Helper()
	for _, name := range []string{outside, folder} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "relative": "../../outside", "loop": "loop", "file": filepath.Join(outside, "file")} {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// tree returns the paths of all files below root, except temporary files of a store.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		path, err = filepath.Rel(root, path)
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
