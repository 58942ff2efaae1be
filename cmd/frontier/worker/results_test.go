package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/frontier"
)

// TestPlace checks where the values of --bodies and --stores-file lead.
func TestPlace(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stores.yaml", `stores: {archive: {url: "s3://bucket?region=r", access-key-id: id, secret-access-key: hunter2}, local: {url: "file://`+dir+`/local", prefix: p}}`)
	write("small.yaml", `stores: {small: {url: "file://`+dir+`/small", max-object-bytes: 1000}}`)
	write("bad.yaml", "stores: {a: {key: hunter2}}")
	const most = 16 << 20
	for _, tt := range []struct {
		name, bodies, stores string
		most                 int64
		there                string // the directory of the bodies
		fault                string
	}{
		{"a path", filepath.Join(dir, "a b?c%d"), "", most, "a b?c%d", ""},
		{"a relative path", "pages", "", most, "pages", ""},
		{"a URL", "file://" + dir + "/url", "", most, "url", ""},
		{"a bucket without a file", "s3://bucket?region=r", "", most, "", "--bodies: a place with credentials must be in a file"},
		{"another scheme", "mem://", "", most, "", "--bodies: a place with credentials must be in a file"},
		{"a directory of the file", "local", "stores.yaml", most, "local/p", ""},
		{"no store of the file", "pages", "stores.yaml", most, "", `--bodies: "pages" is not a store for bodies of stores.yaml: name one`},
		{"no file", "archive", "no.yaml", most, "", "--stores-file: no.yaml: "},
		{"a file that is not usable", "a", "bad.yaml", most, "", "--stores-file: bad.yaml: line 1: not usable"},
		{"a store with a limit", "small", "small.yaml", 1000, "small", ""},
		// Otherwise a longer body would be fetched again and again.
		{"a store with a lower limit", "small", "small.yaml", 1001, "", "--max-body-bytes: 1001 is more than the store accepts: give at most its limit, 1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Results{Bodies: tt.bodies, StoresFile: tt.stores}
			_, stop, err := r.open(t.Context(), &frontier.Config{MaxBodyBytes: tt.most}, true)
			defer stop()
			if tt.fault != "" {
				if text := fmt.Sprint(err); err == nil || !strings.HasPrefix(text, tt.fault) || strings.Contains(text, "hunter2") {
					t.Errorf("open = %v; want an error with %q", err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
			if _, err := os.Stat(filepath.Join(tt.there, fmt.Sprintf("sha256/%.2s/%s", empty, empty))); err != nil {
				t.Errorf("the empty body is not there: %v", err)
			}
		})
	}
}
