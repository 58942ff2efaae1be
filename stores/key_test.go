package stores_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"fetchd/stores"
)

// s3Config is a configuration that makes no request.
func s3Config() stores.Config {
	return stores.Config{URL: "s3://bucket?region=us-east-1&endpoint=http://127.0.0.1:1", AccessKeyID: keyID, SecretAccessKey: secret}
}

// TestKeys checks that both kinds of stores accept the same keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 255)
	longest := strings.Repeat(long+"/", 3) + strings.Repeat("b", 256-2-len("prefix/")) // 1,022 bytes with the prefix
	file := open(t, stores.Config{URL: "file://" + t.TempDir(), Prefix: "prefix"})
	s3 := open(t, func() stores.Config { c := s3Config(); c.Prefix = "prefix/"; return c }())
	for _, row := range []struct {
		name, key string
		ok        bool
	}{
		{"one byte", "a", true},
		{"segments", "a/b/c.html", true},
		{"dots in names", "..a/b../.c/...", true},
		{"any language", "страница/页 1", true},
		{"what a URL escapes", "a%2f..?b=c#d&e+f", true},
		{"a long segment", long, true},
		{"the longest", longest + "bb", true},
		{"names like incoming", "incoming/.incoming2/a.incoming", true},
		{"one byte too long", longest + "bbb", false},
		{"a segment too long", long + "a", false},
		{"too long without the prefix", strings.Repeat("a/", 512) + "a", false},
		{"slash at the start", "/a", false},
		{"slash at the end", "a/", false},
		{"empty segment", "a//b", false},
		{"a slash", "/", false},
		{"dot", "a/./b", false},
		{"dots", "a/../b", false},
		{"dots alone", "..", false},
		{"dots at the end", "a/..", false},
		{"incoming", ".incoming/a", false},
		{"incoming alone", ".incoming", false},
		{"incoming for a system without case", ".Incoming/a", false},
		{"incoming further down", "a/.incoming/b", false},
		{"incoming at the end", "a/.inComing", false},
		{"NUL", "a\x00b", false},
		{"line feed", "a\nb", false},
		{"DEL", "a\x7fb", false},
		{"C1", "a\u0085b", false},
		{"not in XML", "a\ufffeb", false},
		{"backslash", `a\..\b`, false},
		{"not UTF-8", "a\xff", false},
		{"surrogate", "a\xed\xa0\x80", false},
	} {
		for kind, s := range map[string]*stores.Store{"file": file, "s3": s3} {
			if err := s.Check(row.key, ""); (err == nil) != row.ok {
				t.Errorf("%s: %s: Check(%.50q) = %v, want ok %t", row.name, kind, row.key, err, row.ok)
			}
			u, err := s.Begin(t.Context(), stores.Object{Key: row.key, Size: -1})
			if (err == nil) != row.ok {
				t.Errorf("%s: %s: Begin = %v, want ok %t as Check", row.name, kind, err, row.ok)
			}
			if err == nil {
				u.Abort()
			}
		}
	}
}

// TestDigestKeys checks which objects can be named by their digest.
func TestDigestKeys(t *testing.T) {
	t.Parallel()
	file, s3 := open(t, stores.Config{URL: "file://" + t.TempDir()}), open(t, s3Config())
	for _, row := range []struct {
		name, sha256 string
		file, s3     bool
	}{
		{"unknown", "", true, false},
		{"known", digest("a"), true, true},
		{"short", digest("a")[1:], false, false},
		{"upper case", strings.ToUpper(digest("a")), false, false},
		{"not hexadecimal", strings.Repeat("g", 64), false, false},
		{"a path", "../" + digest("a")[3:], false, false},
	} {
		if err := file.Check("", row.sha256); (err == nil) != row.file {
			t.Errorf("%s: Check of a file = %v, want ok %t", row.name, err, row.file)
		}
		if err := s3.Check("", row.sha256); (err == nil) != row.s3 {
			t.Errorf("%s: Check of S3 = %v, want ok %t", row.name, err, row.s3)
		}
	}
}

// FuzzKey writes an object with each accepted key, and finds it below the prefix and nowhere else.
func FuzzKey(f *testing.F) {
	for _, key := range []string{"a", "a/b", "../a", "a/../../b", "/etc/passwd", `..\a`, "sha256/ab", ".incoming/a", "..", "prefix", "a\x00", "é", strings.Repeat("a/", 300)} {
		f.Add(key, "p")
		f.Add("a", key)
	}
	f.Fuzz(func(t *testing.T, key, prefix string) {
		base := t.TempDir()
		dir := filepath.Join(base, "dir")
		s, err := stores.Open("archive", stores.Config{URL: "file://" + dir, Prefix: prefix})
		if err != nil {
			return
		}
		defer s.Close(t.Context())
		if s.Check(key, "") != nil {
			return
		}
		full := path.Join(strings.TrimSuffix(prefix, "/"), key)
		if key == "" {
			full = path.Join(strings.TrimSuffix(prefix, "/"), "sha256", digest("body")[:2], digest("body"))
		}
		if len(full) > 1024 || !utf8.ValidString(full) || path.Clean("/"+full) != "/"+full || strings.HasPrefix(full, ".incoming/") {
			t.Fatalf("Check took %q below %q", key, prefix)
		}
		got, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, []byte("body"), 4)
		if err != nil || path.Join(strings.TrimSuffix(prefix, "/"), got.Key) != full {
			t.Fatalf("%q below %q: Commit = %+v, %v", key, prefix, got, err)
		}
		var files []string
		if err := filepath.WalkDir(base, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, filepath.FromSlash(full)); len(files) != 1 || files[0] != want {
			t.Fatalf("%q below %q: the files are %q, want %q", key, prefix, files, want)
		}
		if body, err := os.ReadFile(files[0]); string(body) != "body" || err != nil {
			t.Fatalf("the file holds %q, %v", body, err)
		}
	})
}
