package main

import (
	"context"
	"database/sql"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/test/rig"
)

// commands returns the shortest command line of each command that works on a database.
func commands() map[string][]string {
	return map[string][]string{
		"add": {"add", "http://a.test/"}, "status": {"status"}, "why": {"why", "http://a.test/"}, "retry": {"retry"}, "prune": {"prune", "--hosts"}, "migrate": {"migrate"},
		"export": {"export"}, "pause": {"pause"}, "resume": {"resume"}, "set": {"set", "a.test", "--delay", "1s"},
	}
}

// Only "frontier add" creates a database.
func TestNoDatabase(t *testing.T) {
	t.Parallel()
	for name, args := range commands() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "frontier.db")
			got := runWith(t.Context(), strings.NewReader(""), nil, append(args, "--db", file)...)
			_, err := os.Stat(file)
			if name == "add" {
				if got.code != cli.ExitOK || err != nil {
					t.Errorf("exit status %d, %q, %v; want 0 and a file", got.code, got.err, err)
				}
				return
			}
			want := "frontier: no database at " + file + ": create it with \"frontier add\" or \"frontier crawl URL\", or name another with --db\n"
			if got.code != cli.ExitDatabase || got.err != want || !os.IsNotExist(err) {
				t.Errorf("exit status %d, %q, %v; want %d, %q and no file", got.code, got.err, err, cli.ExitDatabase, want)
			}
		})
	}
}

// "frontier add" accepts an empty file, such as mktemp creates.
func TestAddToEmptyFile(t *testing.T) {
	t.Parallel()
	c := &fixture{t, filepath.Join(t.TempDir(), "frontier.db")}
	must(t, os.WriteFile(c.db, nil, 0o600))
	diff(t, "output", "1 added, 0 known, 0 bad\n", c.must("add", "http://a.test/"))
}

func TestBadDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	text, short, empty := file("text", "not a database, but longer than its header"), file("short", "SQLite"), file("empty", "")
	for _, tt := range []struct {
		name, command, db string
		code              int
		told              string
	}{
		{"a folder", "status", dir, cli.ExitDatabase, "database " + dir + " is a directory: --db must name a file"},
		{"a device", "add", "/dev/null", cli.ExitDatabase, "database /dev/null is not a regular file"},
		{"a text", "add", text, cli.ExitDatabase, text + " is not a SQLite database: name another file with --db"},
		{"a short text", "status", short, cli.ExitDatabase, short + " is not a SQLite database"},
		{"an empty file", "status", empty, cli.ExitDatabase, "no database at " + empty},
		{"a folder that is missing", "add", dir + "/no/frontier.db", cli.ExitDatabase, dir + "/no is not a directory"},
		{"below a file", "add", text + "/frontier.db", cli.ExitDatabase, "database: stat " + text + "/frontier.db: not a directory"},
		{"nothing", "status", "", cli.ExitUsage, "--db: is empty: give the path of a SQLite file"},
		{"another scheme", "add", "mysql://u:secret@h/d", cli.ExitUsage, "--db: is neither the path of a file nor an address"},
		{"a scheme in capitals", "add", "Postgres://u:secret@h/d", cli.ExitUsage, "--db: is neither"},
		{"a URI of SQLite", "add", "file:frontier.db?mode=ro", cli.ExitUsage, "--db: is neither"},
		{"keywords", "add", "host=h user=u password=secret", cli.ExitUsage, "--db: is neither"},
		{"no address", "add", "postgres://u:sec/secret@h:x/d", cli.ExitUsage, "--db: this is not an address of a PostgreSQL database"},
		{"a bad port", "status", "postgres://u:secret@h:port/d", cli.ExitUsage, "--db: this is not an address"},
		{"a bad parameter", "status", "postgres://u@h/d?password=secret&sslmode=no", cli.ExitUsage, "--db: this is not an address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := runWith(t.Context(), strings.NewReader(""), nil, append(commands()[tt.command], "--db", tt.db)...)
			if got.code != tt.code || !strings.HasPrefix(got.err, "frontier: ") || !strings.Contains(got.err, tt.told) {
				t.Errorf("--db %s: exit status %d, %q; want %d and %q", tt.db, got.code, got.err, tt.code, tt.told)
			}
			if strings.Contains(got.err, "secret") {
				t.Errorf("--db %s: the password was told: %q", tt.db, got.err)
			}
		})
	}
}

// The error about a server that refuses contains everything but the password.
func TestPostgresRefuses(t *testing.T) {
	t.Parallel()
	addr := rig.FreeAddress(t, "127.0.0.1")
	for name, args := range commands() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runWith(t.Context(), strings.NewReader(""), nil, append(args, "--db", "postgres://u:secret@"+addr+"/d?sslmode=disable")...)
			if got.code != cli.ExitDatabase || !strings.Contains(got.err, addr) || !strings.Contains(got.err, "\n  Is the server running,") ||
				strings.Contains(got.err, "secret") || strings.Count(got.err, "\n") != 2 {
				t.Errorf("exit status %d, %q; want %d, the address, what to do, and no password", got.code, got.err, cli.ExitDatabase)
			}
		})
	}
}

// TestNoSuchPostgresDatabase checks the advice about a server that does not have the database.
func TestNoSuchPostgresDatabase(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024)) // the startup message
			fields := "SFATAL\x00VFATAL\x00C3D000\x00Mdatabase \"d\" does not exist\x00\x00"
			_, _ = conn.Write(append([]byte{'E', 0, 0, 0, byte(4 + len(fields))}, fields...))
			_ = conn.Close()
		}
	}()
	got := runWith(t.Context(), strings.NewReader(""), nil, "status", "--db", "postgres://u@"+l.Addr().String()+"/d?sslmode=disable")
	if got.code != cli.ExitDatabase || !strings.HasSuffix(got.err, "\n  Create the database with createdb, or name another with --db.\n") || !strings.Contains(got.err, `database "d" does not exist`) {
		t.Errorf("exit status %d, %q; want %d, the answer, and how to create the database", got.code, got.err, cli.ExitDatabase)
	}
}

func TestPasswordInTheWrongPlace(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"status", "postgres://u:secret@h/d"},
		{"postgres://u:sec/secret@h/d"},
		{"why", "postgres://u:secret@h/d"},
		{"pause", "postgres://u:secret@h/d"},
		{"pause", "u:secret@h"},
		{"export", "--what", "postgres://u:secret@h/d"},
		{"set", "h", "--max-in-flight", "postgres://u:secret@h/d"},
		{"add", "-i", "/no/postgres://u:secret@h/d"},
	} {
		got := runWith(t.Context(), strings.NewReader(""), nil, args...)
		if got.code != cli.ExitUsage || strings.Contains(got.err, "secret") {
			t.Errorf("frontier %q: exit status %d, %q; want %d and no password", args, got.code, got.err, cli.ExitUsage)
		}
	}
}

func TestEnvironmentNamesTheDatabase(t *testing.T) {
	t.Parallel()
	c, other := newCrawl(t, "http://a.test/"), newCrawl(t)
	if got := c.must("export"); !strings.Contains(got, "a.test") {
		t.Errorf("export = %q, want the URL of the database in FRONTIER_DB", got)
	}
	if got := c.must("export", "--db", other.db); got != "" {
		t.Errorf("export --db = %q, want nothing: the flag counts more", got)
	}
}

func TestOtherVersions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, change, told, hint string }{
		{"newer schema", `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)`,
			"the database was made by a newer version of this program: its schema is version 999", "Use the version of frontier that was used last, or a newer one"},
		{"other normal form", `UPDATE settings SET value = '0' WHERE name = 'normal_form_version'`,
			"the database has URLs in another version of the normal form: 0, not 1", "add them to a new database with this version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t)
			c.exec(tt.change)
			for name, args := range commands() {
				got := c.cli(args...)
				if got.code != cli.ExitDatabase || !strings.Contains(got.err, tt.told) || !strings.Contains(got.err, "\n  ") || !strings.Contains(got.err, tt.hint) {
					t.Errorf("%s: exit status %d, %q; want %d, %q and %q", name, got.code, got.err, cli.ExitDatabase, tt.told, tt.hint)
				}
			}
		})
	}
}

// exec changes the database directly.
func (c *fixture) exec(query string) {
	c.t.Helper()
	db, err := sql.Open("sqlite", c.db)
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(c.t.Context(), query); err != nil {
		c.t.Fatalf("%s: %v", query, err)
	}
}

func TestInterruptedBefore(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, args := range commands() {
		got := runWith(ctx, strings.NewReader(""), map[string]string{"FRONTIER_DB": c.db}, args...)
		if got.code != cli.ExitInterrupted || got.err != "frontier: interrupted\n" || got.out != "" {
			t.Errorf("%s: exit status %d, %q, %q; want %d and interrupted", name, got.code, got.out, got.err, cli.ExitInterrupted)
		}
	}
}

// TestOlderDatabase checks that commands that only read say what a database lacks, and that migrate helps.
func TestOlderDatabase(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	c.exec(`DROP TABLE settings; DROP TABLE fetches; DROP TABLE urls; DROP TABLE hosts; DROP TABLE robots; DROP TABLE workers;
		DROP TABLE host_groups; DROP TABLE turns; DROP TABLE patterns; DELETE FROM goose_db_version WHERE version_id > 0`)
	for _, args := range [][]string{{"status"}, {"why", "http://a.test/"}, {"export"}, {"robots", "a.test"}, {"prune", "--hosts", "--dry-run"}} {
		got := c.cli(args...)
		want := "the database must be migrated: it has no frontier yet\n  Run \"frontier migrate\""
		if got.code != cli.ExitDatabase || !strings.Contains(got.err, want) {
			t.Errorf("%q: exit status %d, %q; want %q", args, got.code, got.err, want)
		}
	}
	diff(t, "migrate", "The database has the schema of this version.\n", c.must("migrate"))
	diff(t, "export", "", c.must("export"))
}
