package stores_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"fetchd/internal/stores"
)

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := stores.Open("local", stores.Config{URL: "file://" + dir + "/a", Prefix: "p/q"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	u, err := s.Begin(t.Context(), stores.Object{Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got, err := u.Commit(digest("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a/p/q", got.Key)); string(b) != "hello" {
		t.Error(b, err, got)
	}
}
