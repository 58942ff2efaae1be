package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"fetchd/frontier/store/database"
)

// The error names the file if the disk is full, and no file for other errors.
func TestSQLiteNamesAFullFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frontier.db")
	s := open(t, path)
	lite := s.engine.(*sqliteDB).lite //nolint:errcheck // it is SQLite
	pages := func(limit string) {
		t.Helper()
		if err := lite.Transact(t.Context(), func(t database.Tx) error { _, err := t.Exec(`PRAGMA max_page_count = ` + limit); return err }); err != nil {
			t.Fatal(err)
		}
	}
	pages("1") // no more than it has
	var urls []string
	for n := range 1000 {
		urls = append(urls, fmt.Sprintf("http://a.test/%d", n))
	}
	_, err := s.Put(t.Context(), Entries(urls...), Limits{})
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code() != sqlite3.SQLITE_FULL {
		t.Fatalf("Put into a full file = %v, want SQLITE_FULL", err)
	}
	if text := fmt.Sprint(err); !strings.Contains(text, path) {
		t.Errorf("Put into a full file = %q, want it to name %s", text, path)
	}
	pages("4294967294")
	if got, err := s.Put(t.Context(), Entries(urls...), Limits{}); err != nil || got.Added != int64(len(urls)) {
		t.Errorf("Put once there is room = %+v, %v, want %d added", got, err, len(urls))
	}
	if _, err := s.base().db.Update(t.Context(), "test", `UPDATE no_such_table SET x = 1`); err == nil || strings.Contains(fmt.Sprint(err), path) {
		t.Errorf("a statement that is wrong = %v, want an error that does not speak of the file", err)
	}
}
