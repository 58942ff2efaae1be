package worker

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/frontier"
	"fetchd/internal/cli"
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
		{"a file that is not usable", "a", "bad.yaml", most, "", "--stores-file: bad.yaml: line 1: a key"},
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

// TestUnusablePlaces checks places that cannot take results.
func TestUnusablePlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, set := filepath.Join(dir, "file"), filepath.Join(dir, "stores.yaml")
	for name, text := range map[string]string{file: "", set: `stores: {pages: {url: "file://` + dir + `/pages"}, crawl: {url: "warc+file://` + dir + `/warc"},
  bucket: {url: "s3://bucket?region=r&endpoint=http://127.0.0.1:1&use_path_style=true", access-key-id: id, secret-access-key: secret}}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		results Results
		code    int
		fault   string
	}{
		{"bodies to a file", Results{Bodies: file}, cli.ExitOutput, "--bodies: store bodies: "},
		{"bodies under a file", Results{Bodies: filepath.Join(file, "pages")}, cli.ExitOutput, "give a directory or a store that you can write to"},
		{"bodies to a URL with parameters", Results{Bodies: "file://" + dir + "?secret=1"}, cli.ExitOutput, "--bodies: the URL must be file:///DIR"},
		{"bodies to a bucket that is not there", Results{Bodies: "bucket", StoresFile: set}, cli.ExitOutput, "--bodies: store bucket: "},
		{"bodies to a store for records", Results{Bodies: "crawl", StoresFile: set}, cli.ExitUsage, `--bodies: "crawl" is not a store for bodies of ` + set},
		{"outcomes to a folder", Results{Outcomes: dir}, cli.ExitOutput, "write: open " + dir + ": is a directory"},
		{"outcomes to a folder that is not there", Results{Outcomes: filepath.Join(dir, "no", "file")}, cli.ExitOutput, "no such file or directory"},
		{"records to a file", Results{WARC: file}, cli.ExitOutput, "--warc: store warc: "},
		{"records under a file", Results{WARC: filepath.Join(file, "warc")}, cli.ExitOutput, "give a directory or a store that you can write to"},
		{"records to a URL with parameters", Results{WARC: "warc+file://" + dir + "?x=1"}, cli.ExitOutput, "--warc: the URL must be warc+file:///DIR"},
		{"records to a URL for bodies", Results{WARC: "file://" + dir}, cli.ExitOutput, "--warc: the URL must be warc+file:///DIR"},
		{"records to a bucket without a file", Results{WARC: "warc+s3://bucket?region=r"}, cli.ExitUsage, "--warc: a place with credentials must be in a file"},
		{"records to a store for bodies", Results{WARC: "pages", StoresFile: set}, cli.ExitUsage, `--warc: "pages" is not a store for WARC files of ` + set},
		{"records to no store", Results{WARC: dir, StoresFile: set}, cli.ExitUsage, "is not a store for WARC files of " + set + ": name one of that file, or remove --stores-file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, stop, err := tt.results.open(t.Context(), &frontier.Config{MaxBodyBytes: 1, Logger: slog.New(slog.DiscardHandler)}, true)
			defer stop()
			if text := fmt.Sprint(err); cli.CodeOf(err) != tt.code || !strings.Contains(text, tt.fault) || strings.Contains(text, "secret") {
				t.Errorf("open = %v, exit code %d; want %q and %d", err, cli.CodeOf(err), tt.fault, tt.code)
			}
		})
	}
}
