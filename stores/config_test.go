package stores_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/stores"
)

// TestReadFile checks what a file of stores may contain, and that errors contain no secret.
func TestReadFile(t *testing.T) {
	t.Parallel()
	const bucket = "url: 's3://bucket?region=eu-central-1', access-key-id: AKIA"
	const warc = "url: 'warc+s3://bucket?region=eu-central-1', access-key-id: AKIA, secret-access-key: s3cr3t, spool-dir: DIR/b"
	for _, row := range []struct{ name, text, want string }{ // want is in the error; empty: none
		{"empty", "", ""},
		{"no stores", "stores: {}", ""},
		{"a directory", "stores: {a: {url: 'file://DIR/a', prefix: p/q, callers: [alice], max-object-bytes: 10}}", ""},
		{"a bucket", "stores: {a: {" + bucket + ", secret-access-key: s3cr3t, session-token: s3cr3t-too}}", ""},
		{"a bucket, secret in a file", "stores: {a: {" + bucket + ", secret-access-key-file: 'DIR/secret'}}", ""},

		{"no YAML", "stores: [", "want YAML with stores"},
		{"a list", "- s3cr3t", "want YAML with stores"},
		{"another key", "stores: {a: {url: 'file://DIR/a', s3cr3t: 1}}", "line 1: a key (not repeated here) is none of stores, which has url, prefix,"},
		{"twice", "stores: {a: {url: 'file://DIR/a'}, a: {}}", "line 1: not usable"},
		{"two documents", "stores: {}\n---\nstores: {}", "second document"},
		{"a bad name", "stores: {'A b': {url: 'file://DIR/a'}}", "give a name of 1 to 64"},
		{"nothing in it", "stores: {a: }", "store a"},
		{"no callers", "stores: {a: {url: 'file://DIR/a', callers: []}}", "line 1: callers: is empty"},
		{"callers without a value", "stores: {a: {url: 'file://DIR/a', callers: }}", "line 1: callers: is empty"},
		{"an empty caller", "stores: {a: {url: 'file://DIR/a', callers: ['']}}", "line 1: callers: is empty"},
		{"another scheme", "stores: {a: {url: 'http://s3cr3t@host/'}}", "store a"},
		{"a prefix that leaves", "stores: {a: {url: 'file://DIR/a', prefix: ../b}}", "prefix"},
		{"a negative size", "stores: {a: {url: 'file://DIR/a', max-object-bytes: -1}}", "give zero or more"},
		{"no credentials", "stores: {a: {url: 's3://bucket?region=eu-central-1'}}", "store a"},
		{"a key without its secret", "stores: {a: {" + bucket + "}}", "store a"},
		{"both secrets", "stores: {a: {" + bucket + ", secret-access-key: s3cr3t, secret-access-key-file: 'DIR/secret'}}", "give one"},
		{"no file of the secret", "stores: {a: {" + bucket + ", secret-access-key-file: 'DIR/none'}}", "secret-access-key-file"},
		{"no region", "stores: {a: {url: 's3://bucket', access-key-id: AKIA, secret-access-key: s3cr3t}}", "region"},
		{"a credential in the URL", "stores: {a: {url: 's3://bucket?region=x&access_key=s3cr3t', access-key-id: AKIA, secret-access-key: s3cr3t}}", "access_key"},
		{"no authorities", "stores: {a: {" + bucket + ", secret-access-key: s3cr3t, ca-file: 'DIR/secret'}}", "ca-file"},
		{"no file of authorities", "stores: {a: {" + bucket + ", secret-access-key: s3cr3t, ca-file: 'DIR/none'}}", "ca-file"},

		{"records in a directory", "stores: {a: {url: 'warc+file://DIR/a', callers: [alice], max-file-bytes: 10, max-file-age: 2h, max-spool-bytes: 10, " +
			"redact: [Set-Cookie], operator: Ops, file-mode: 0640}}", ""},
		{"records in a bucket", "stores: {a: {" + warc + ", prefix: p}}", ""},
		{"records with another scheme", "stores: {a: {url: 'warc+http://host/'}}", "warc+file:///DIR"},
		{"records without a directory", "stores: {a: {url: 'warc+file://'}}", "file:///DIR"},
		{"records with credentials of a directory", "stores: {a: {url: 'warc+file://DIR/a', access-key-id: s3cr3t}}", "no credentials"},
		{"records with a prefix of a directory", "stores: {a: {url: 'warc+file://DIR/a', prefix: p}}", "prefix is for buckets"},
		{"records with a spool of a directory", "stores: {a: {url: 'warc+file://DIR/a', spool-dir: DIR/b}}", "spool-dir is for buckets"},
		{"records in a bucket without a spool", "stores: {a: {" + strings.Replace(warc, "spool-dir", "operator", 1) + "}}", "spool-dir is missing"},
		{"records in a bucket without credentials", "stores: {a: {url: 'warc+s3://bucket?region=eu-central-1', spool-dir: DIR/b}}", "credentials"},
		{"records with a limit of objects", "stores: {a: {" + warc + ", max-object-bytes: 1}}", "max-object-bytes"},
		{"records with a negative age", "stores: {a: {" + warc + ", max-file-age: -1s}}", "negative"},
		{"records in files above the largest object", "stores: {a: {" + warc + ", max-file-bytes: 99999999999}}", "at most 42949672960"},
		{"records without a field that is one", "stores: {a: {" + warc + ", redact: ['Set Cookie']}}", "redact"},
		{"records of an operator of two lines", "stores: {a: {" + warc + ", operator: \"a\\nb\"}}", "operator"},
		{"records in a directory that is a file", "stores: {a: {url: 'warc+file://DIR/secret'}}", "store a"},
		{"records in another store that fails", "stores: {a: {" + warc + "}, b: {url: 'ftp:'}}", "store b"},
		{"records with a mode that is no number", "stores: {a: {" + warc + ", file-mode: 'u=rw'}}", "file-mode"},
		{"records with a mode that the service cannot use", "stores: {a: {" + warc + ", file-mode: 0440}}", "file-mode"},
		{"records with a mode that is too long", "stores: {a: {" + warc + ", file-mode: 04640}}", "file-mode"},
		{"bodies with a mode", "stores: {a: {url: 'file://DIR/a', file-mode: 0640}}", "stores for records"},
		{"bodies with a spool", "stores: {a: {url: 'file://DIR/a', spool-dir: DIR/b}}", "stores for records"},
		{"bodies with an age", "stores: {a: {" + bucket + ", secret-access-key: s3cr3t, max-file-age: 1h}}", "stores for records"},
		{"bodies with fields", "stores: {a: {url: 'file://DIR/a', redact: []}}", "stores for records"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir+"/secret", "s3cr3t\n")
			file := write(t, dir+"/stores.yaml", strings.ReplaceAll(row.text, "DIR", dir))
			set, err := stores.ReadFile(file, new(stores.Set))
			if err == nil {
				t.Cleanup(set.Drop)
			}
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(fmt.Sprint(err), row.want) {
				t.Fatalf("error %v, want %q in it", err, row.want)
			}
			if err != nil && (strings.Contains(fmt.Sprint(err), "s3cr3t") || !strings.Contains(fmt.Sprint(err), file)) {
				t.Errorf("error %v, want the name of the file and no secret", err)
			}
		})
	}
}

// TestReadFileAgain checks which stores stay open, because a store that is opened again forgets that
// it is down.
func TestReadFileAgain(t *testing.T) {
	t.Parallel()
	const text = "stores:\n  a:\n    url: s3://bucket?region=eu-central-1\n    access-key-id: AKIA\n    secret-access-key-file: DIR/secret\n"
	for _, row := range []struct {
		name, text, secret string
		kept, same         bool
	}{
		{"nothing", text, "s3cr3t", true, true},
		{"callers", text + "    callers: [alice]\n", "s3cr3t", true, false},
		{"another store", text + "  b: {url: 'file://DIR/b'}\n", "s3cr3t", true, false},
		{"the secret", text, "other", false, false},
		{"the prefix", text + "    prefix: p\n", "s3cr3t", false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			read := func(text, secret string, before *stores.Set) *stores.Set {
				write(t, dir+"/secret", secret)
				set, err := stores.ReadFile(write(t, dir+"/stores.yaml", strings.ReplaceAll(text, "DIR", dir)), before)
				must(t, err)
				return set
			}
			before := read(text, "s3cr3t", new(stores.Set))
			now := read(row.text, row.secret, before)
			old, _ := before.Get("a")
			if got, _ := now.Get("a"); (got == old) != row.kept || now.Same(before) != row.same {
				t.Errorf("kept %t, same %t, want %t and %t", got == old, now.Same(before), row.kept, row.same)
			}
			if none, _ := now.Get("none"); none != nil {
				t.Error("a store that does not exist was found")
			}
		})
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(filepath.FromSlash(path), []byte(text), 0o600))
	return path
}
