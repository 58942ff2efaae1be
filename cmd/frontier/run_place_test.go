package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/internal/stores"
)

// TestPlace checks where the values of --bodies and --stores lead.
func TestPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "stores.yaml")
	text := `stores: {archive: {url: "s3://b?region=r", access_key_id: id, secret_access_key: hunter2}, local: {url: "file:///var/bodies", prefix: p}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("stores: {a: {key: hunter2}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, bodies, stores string
		want                 stores.Config
		fault                string
	}{
		{"a path", "/var/a b", "", stores.Config{URL: "file:///var/a%20b"}, ""},
		{"a relative path", "pages", "", stores.Config{URL: "file://" + working + "/pages"}, ""},
		{"a URL", "file:///var/bodies", "", stores.Config{URL: "file:///var/bodies"}, ""},
		{"a bucket without a file", "s3://b?region=r", "", stores.Config{}, "--bodies: a place with credentials must be in a file"},
		{"another scheme", "mem://", "", stores.Config{}, "--bodies: a place with credentials must be in a file"},
		{"a bucket", "archive", file, stores.Config{URL: "s3://b?region=r", AccessKeyID: "id", SecretAccessKey: "hunter2"}, ""},
		{"a directory of the file", "local", file, stores.Config{URL: "file:///var/bodies", Prefix: "p"}, ""},
		{"no store of the file", "pages", file, stores.Config{}, `--bodies: "pages" is not a store of ` + file + `: give one of ["archive" "local"]`},
		{"no file", "archive", filepath.Join(dir, "no"), stores.Config{}, "--stores: open " + filepath.Join(dir, "no")},
		{"a file that is not usable", "a", bad, stores.Config{}, "--stores: " + bad + ": line 1: not usable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := (&runCmd{Bodies: tt.bodies, Stores: tt.stores}).place()
			if tt.fault == "" {
				if err != nil || !reflect.DeepEqual(got, tt.want) {
					t.Errorf("place = %+v, %v; want %+v", got, err, tt.want)
				}
				return
			}
			if e, ok := errors.AsType[*cli.Error](err); !ok || !strings.Contains(fmt.Sprint(e), tt.fault) || strings.Contains(fmt.Sprint(e), "hunter2") {
				t.Errorf("place = %+v, %v; want an error with %q", got, err, tt.fault)
			}
		})
	}
}

// TestPlaceTooSmall checks that a store whose limit is below --max-body-bytes is rejected. Otherwise
// a longer body would be fetched again and again.
func TestPlaceTooSmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "stores.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`stores: {small: {url: "file://%s", max_object_bytes: 1000}}`, dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{1000: "", 1001: "--max-body-bytes: 1001 is more than the store accepts: give at most its limit, 1000"} {
		b, err := (&runCmd{Bodies: "small", Stores: file, MaxBody: most}).openBodies(t.Context())
		if want == "" && err == nil {
			err = b.Close()
		}
		if want == "" && err != nil || want != "" && fmt.Sprint(err) != want {
			t.Errorf("%d bytes: %v, want %q", most, err, want)
		}
	}
}
