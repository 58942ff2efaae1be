package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/test/rig/pgtest"
)

// TestShards makes one database two, and three, and uses them by every command that reads.
func TestShards(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start("-c", "fsync=off")
	pgtest.Need(t, err)
	t.Cleanup(server.Remove)
	var dsns []string
	admin, err := sql.Open("pgx", server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, name := range []string{"one", "two", "three"} {
		if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
			t.Fatal(err)
		}
		dsns = append(dsns, server.DSN(name))
	}
	urls := make([]string, 40)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://h%d.test/", i)
	}
	run := func(n int, args ...string) result {
		t.Helper()
		return runWith(context.Background(), strings.NewReader(""), map[string]string{"FRONTIER_DB": strings.Join(dsns[:n], " ")}, args...)
	}
	want := func(r result, code int, out, err string) {
		t.Helper()
		if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
			t.Errorf("exit status %d, want %d\n%s\nwant %q; %s\nwant %q", r.code, code, r.out, out, r.err, err)
		}
	}
	want(run(1, append([]string{"add"}, urls...)...), cli.ExitOK, "40 added", "")
	want(run(1, "shards", "list"), cli.ExitDatabase, "", "this frontier has one database")
	want(run(1, "shards", "add", "frontier.db"), cli.ExitUsage, "", "give postgres://")
	want(run(1, "shards", "add", dsns[1]), cli.ExitOK, "Moved 505 slots with ", "")
	want(run(1, "status"), cli.ExitDatabase, "", "this is number 0 of 2: name the others with --db too")
	want(run(2, "shards", "add", dsns[2]), cli.ExitOK, "Moved 3", "")
	want(run(2, "shards", "add", dsns[2]), cli.ExitOK, "Moved 0 slots", "") // as if it had been interrupted
	want(run(3, "status"), cli.ExitOK, "40", "")
	want(run(3, "shards", "list"), cli.ExitOK, "number  database", "")
	two, err := sql.Open("pgx", dsns[1])
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if _, err := two.Exec(`INSERT INTO parcels (body, stuck) VALUES ('{', TRUE)`); err != nil {
		t.Fatal(err)
	}
	want(run(3, "shards", "list"), cli.ExitOK, "Database 1 has 1 parcel for others that they refuse", "")
	want(run(3, "shards", "move", "--from", "0", "--to", "0", "--slots", "1"), cli.ExitUsage, "", "another number for --to")
	want(run(3, "shards", "move", "--from", "0", "--to", "7", "--slots", "1"), cli.ExitDatabase, "", "there is no database 7")
	want(run(3, "shards", "move", "--from", "0", "--to", "2", "--slots", "3"), cli.ExitOK, "Moved 3 slots", "")
	want(run(3, "shards", "move"), cli.ExitOK, "Moved 0 slots", "")
	want(run(3, "shards", "repair"), cli.ExitOK, "Each database has", "")
	want(run(3, "why", urls[7]), cli.ExitOK, urls[7], "")
	if r := run(3, "export"); strings.Count(r.out, "\n") != 40 {
		t.Errorf("export wrote %d lines, want 40: %s", strings.Count(r.out, "\n"), r.err)
	}
	want(run(3, "pause"), cli.ExitOK, "", "")
	want(run(3, "resume"), cli.ExitOK, "", "")
	want(run(3, "prune", "--urls", "pending"), cli.ExitOK, "Deleted 40 URLs", "")
	if _, err := admin.Exec("ALTER DATABASE two ALLOW_CONNECTIONS false"); err != nil {
		t.Fatal(err)
	}
	want(run(3, "status"), cli.ExitOK, "0", "cannot be reached: what it has is left out")
	want(run(3, "status", "--classes"), cli.ExitOK, "cannot be reached: it is not counted", "")
	want(run(3, "status", "--json"), cli.ExitOK, `"unreachable_databases":["1 (`, "")
	want(run(3, "shards", "list"), cli.ExitOK, "cannot be reached", "")
	want(run(3, "add", urls[0]), cli.ExitDatabase, "", "two")
}
