//go:build linux

package crawls

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// many are the databases of one frontier, each on a server of its own.
type many []*postgres

func newMany(t *testing.T, n int) (m many) {
	t.Helper()
	for range n {
		m = append(m, newPostgres(t))
	}
	return m
}

// dsn returns the connection strings as --db and FRONTIER_DB take them.
func (m many) dsn() string {
	all := make([]string, len(m))
	for i, p := range m {
		all[i] = p.dsn()
	}
	return strings.Join(all, " ")
}

// joined is the connection string of the database that join makes.
func (m many) joined() string { return m[0].DSN("joined") }

// join makes a database on the first server whose tables have the rows of all databases, with their numbers. So the
// queries of the checks are the same for one database and for many.
func (m many) join(ctx context.Context) {
	m[0].Helper()
	execute(ctx, m[0].T, m[0].dsn(), `CREATE DATABASE joined`)
	queries := []string{`CREATE EXTENSION postgres_fdw`}
	tables := []string{"urls", "fetches", "hosts", "parcels"}
	views := make([][]string, len(tables))
	for i, p := range m {
		queries = append(queries, fmt.Sprintf(`CREATE SERVER d%[1]d FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%[2]s', dbname 'postgres')`, i, p.Folder()),
			fmt.Sprintf(`CREATE USER MAPPING FOR CURRENT_USER SERVER d%d OPTIONS (user 'frontier')`, i), fmt.Sprintf(`CREATE SCHEMA d%d`, i),
			fmt.Sprintf(`IMPORT FOREIGN SCHEMA public LIMIT TO (%[2]s) FROM SERVER d%[1]d INTO d%[1]d`, i, strings.Join(tables, ", ")))
		for n, table := range tables {
			views[n] = append(views[n], fmt.Sprintf(`SELECT %[1]d AS db, x.* FROM d%[1]d.%[2]s AS x`, i, table))
		}
	}
	for n, table := range tables {
		queries = append(queries, fmt.Sprintf(`CREATE VIEW %s AS %s`, table, strings.Join(views[n], " UNION ALL ")))
	}
	execute(ctx, m[0].T, m.joined(), queries...)
}

// victims returns the servers. Each time one crashes, is stopped for some seconds, or is shut down.
func (m many) victims(ctx context.Context) (all []victim) {
	const least, most = 2 * time.Second, 6 * time.Second
	next := rand.IntN(3)
	for i, p := range m {
		how := next + i
		all = append(all, victim{name: fmt.Sprintf("PostgreSQL %d", i), kill: func() {
			switch how++; how % 3 {
			case 0:
				p.kill()
			case 1:
				must(p, p.Suspend())
			case 2:
				p.Shutdown()
			}
		}, start: func() {
			wait.For(ctx, least+rand.N(most-least)) // the others work
			if p.Suspended() {
				must(p, p.Resume())
			} else {
				p.restart(p.dsn())
			}
		}})
	}
	return all
}

// newCrawlMany is newCrawlOf with many databases.
func newCrawlMany(ctx context.Context, t *testing.T, m many, n int, cfg site.Config) *crawl {
	t.Helper()
	c := newCrawlOf(ctx, t, m.joined(), n, cfg)
	c.dsn, c.many = m.dsn(), m
	return c
}

// delivered waits until nothing waits in one database for another.
func (c *crawl) delivered() {
	c.Helper()
	if c.many != nil {
		rig.Until(c.ctx, c.T, "the parcels are delivered", func() bool { return c.count(`SELECT count(*) FROM parcels`) == 0 })
	}
}

// placed checks that each row is in the database of its host, that no URL has two rows, and that nothing waits.
//
// A row whose redirect leads into another database keeps its own URL, and the final URL has a row there. So there are
// more rows than in one database, where the first row with the redirect takes the final URL.
func (c *crawl) placed() {
	c.Helper()
	if c.many == nil {
		return
	}
	for what, query := range map[string]string{
		"parcels":            `SELECT count(*) FROM parcels`,
		"hashes twice":       `SELECT count(*) FROM (SELECT 1 FROM urls GROUP BY url_hash HAVING count(*) > 1) AS x`,
		"ids twice":          `SELECT count(*) FROM (SELECT 1 FROM urls GROUP BY id HAVING count(*) > 1) AS x`,
		"outcomes of no row": `SELECT count(*) FROM fetches f WHERE NOT EXISTS (SELECT 1 FROM urls u WHERE u.id = f.url_id)`,
		"hosts that move":    `SELECT count(*) FROM hosts WHERE moving OR host LIKE 'gone %'`,
		"hosts twice":        `SELECT count(*) FROM (SELECT 1 FROM hosts GROUP BY host HAVING count(*) > 1) AS x`,
		"final URLs without a row": `SELECT count(*) FROM (SELECT DISTINCT final_url FROM fetches WHERE status = 'fetched' AND final_url <> '') AS f
			WHERE NOT EXISTS (SELECT 1 FROM urls u WHERE u.url = f.final_url)`,
		"rows of another host": `SELECT count(*) FROM urls u JOIN hosts h ON h.db = u.db AND h.id = u.host_id WHERE NOT starts_with(u.url, 'http://' || h.host || '/')`,
	} {
		if got := c.count(query); got != 0 {
			c.Errorf("%s: %d, want 0", what, got)
		}
	}
	for i, p := range c.many {
		if n := p.count(c.ctx, `SELECT count(*) FROM hosts WHERE NOT EXISTS (SELECT 1 FROM slots WHERE slot = frontier_slot(host) AND open)`); n != 0 {
			c.Errorf("database %d has %d hosts of others", i, n)
		}
		if n := p.count(c.ctx, fmt.Sprintf(`SELECT count(*) FROM settings, jsonb_array_elements(value::jsonb -> 'slots') WITH ORDINALITY AS s (database, n)
			FULL JOIN slots o ON o.slot = s.n - 1 WHERE name = 'shards' AND (o.slot IS NOT NULL) <> (database = '%d')`, i)); n != 0 {
			c.Errorf("database %d has %d slots other than those of the table", i, n)
		}
		if c.count(fmt.Sprintf(`SELECT count(*) FROM fetches WHERE db = %d`, i)) == 0 {
			c.Errorf("database %d has no outcome, so the test does not use it", i)
		}
	}
	into := c.count(`SELECT count(*) FROM fetches f JOIN urls o ON o.id = f.url_id JOIN urls u ON u.url = f.final_url WHERE u.db <> o.db`)
	if into == 0 {
		c.Errorf("no redirect leads into another database")
	}
	c.Logf("%d outcomes have a final URL in another database", into)
}
