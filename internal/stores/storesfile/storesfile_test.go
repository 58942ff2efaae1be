package storesfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fetchd/internal/stores"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	t.Parallel()
	secret := write(t, "from-a-file\n")
	for name, row := range map[string]struct {
		text string
		want map[string]Entry
	}{
		"empty":     {"", map[string]Entry{}},
		"no stores": {"stores: {}", map[string]Entry{}},
		"directory": {`stores: {local: {url: "file:///var/bodies"}}`, map[string]Entry{"local": {Config: stores.Config{URL: "file:///var/bodies"}}}},
		"everything": {`stores:
  archive:
    url: s3://bucket?region=eu-central-1
    prefix: crawl/
    callers: [crawler]
    max_object_bytes: 1073741824
    access_key_id: id
    secret_access_key: key
    session_token: token
`, map[string]Entry{"archive": {Callers: []string{"crawler"}, Config: stores.Config{URL: "s3://bucket?region=eu-central-1", Prefix: "crawl/",
			MaxObjectBytes: 1 << 30, AccessKeyID: "id", SecretAccessKey: "key", SessionToken: "token"}}}},
		"a key in a file": {"stores: {a: {url: s3://b, access_key_id: id, secret_access_key_file: " + secret + "}}",
			map[string]Entry{"a": {Config: stores.Config{URL: "s3://b", AccessKeyID: "id", SecretAccessKey: "from-a-file"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(write(t, row.text))
			if err != nil || !reflect.DeepEqual(got, row.want) {
				t.Errorf("Read = %+v, %v; want %+v", got, err, row.want)
			}
		})
	}
}

// TestReadRefuses checks that an error names the place and contains no secret.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	empty := write(t, "\n")
	for name, row := range map[string]struct{ text, want string }{
		"no YAML":               {"stores: [hunter2", "not usable: want YAML with stores"},
		"an unknown key":        {"stores:\n  a:\n    url: s3://b\n    secret: hunter2", "line 4: not usable"},
		"another type":          {"stores: {a: {url: s3://b, max_object_bytes: hunter2}}", "line 1: not usable"},
		"a key twice":           {"stores:\n  a: {url: s3://b}\n  a: {url: s3://hunter2}", "line 3"},
		"two documents":         {"stores: {}\n---\nstores: {}", "has a second document"},
		"no url":                {"stores: {a: {secret_access_key: hunter2}}", `"a": has no url`},
		"no callers":            {"stores: {a: {url: s3://b, callers: []}}", "name the callers"},
		"a caller without name": {`stores: {a: {url: s3://b, callers: [""]}}`, "name the callers"},
		"two secrets":           {"stores: {a: {url: s3://b, secret_access_key: hunter2, secret_access_key_file: /x}}", "give one of the two"},
		"no secret there":       {"stores: {a: {url: s3://b, secret_access_key_file: /nowhere/at/all}}", "/nowhere/at/all"},
		"an empty secret":       {"stores: {a: {url: s3://b, secret_access_key_file: " + empty + "}}", "is empty"},
		"no authorities there":  {"stores: {a: {url: s3://b, ca_file: /nowhere/at/all}}", "/nowhere/at/all"},
		"no certificate":        {"stores: {a: {url: s3://b, ca_file: " + empty + "}}", "no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(write(t, row.text))
			if text := fmt.Sprint(err); err == nil || !strings.Contains(text, row.want) || strings.Contains(text, "hunter2") {
				t.Errorf("Read = %+v, %v; want an error with %q", got, err, row.want)
			}
		})
	}
	if _, err := Read("/nowhere/at/all"); err == nil {
		t.Error("Read of a file that is not there = nil, want an error")
	}
}
