//go:build linux

package crawls

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier"
)

// redirectWait is how long a redirect waits for its host, before the target becomes a URL of its
// own (docs/frontier.md, F7). Not every redirect of a crawl with a fault is followed in time: the
// host of a killed worker opens up to 26 s later, when its lease has expired and another worker has
// noticed, and then the visits that wait for it take turns.
const redirectWait = 30 * time.Second

// unfollowed returns the number of redirects that were not followed.
func (c *crawl) unfollowed() int {
	c.Helper()
	return c.count(`SELECT count(*) FROM fetches WHERE status = 'fetched' AND http_status = 302`)
}

// complete fails the test unless every URL was fetched and recorded exactly once.
func (c *crawl) complete() {
	c.Helper()
	redirects := c.unfollowed()
	if took := time.Since(c.started); redirects > 0 && took < redirectWait {
		c.Errorf("%d redirects were not followed, although the crawl took only %v", redirects, took)
	}
	// Another redirect may lead to the same target and be followed, so there may be fewer targets.
	targets := c.count(`SELECT count(*) FROM fetches WHERE status = 'fetched' AND url LIKE '%via=r'`)
	if targets > redirects {
		c.Errorf("%d targets of redirects were fetched as URLs, but only %d redirects were not followed", targets, redirects)
	} else if redirects > 0 {
		c.Logf("%d redirects waited longer than %v and were not followed; %d of their targets were fetched as URLs", redirects, redirectWait, targets)
	}
	urls := c.urls + targets
	for _, row := range []struct {
		what, query string
		want        int
	}{
		{"URLs", `SELECT count(*) FROM urls`, urls},
		{"fetched URLs", `SELECT count(*) FROM urls WHERE status = 'fetched'`, urls},
		{"outcomes that say fetched", `SELECT count(*) FROM fetches WHERE status = 'fetched'`, urls},
		{"URLs without such an outcome", `SELECT count(*) FROM urls u WHERE NOT EXISTS (SELECT 1 FROM fetches f WHERE f.url_id = u.id AND f.status = 'fetched')`, 0},
		{"outcomes without a body", `SELECT count(*) FROM fetches WHERE status = 'fetched' AND body_digest = ''`, redirects},
		{"claims with two outcomes", `SELECT count(*) FROM (SELECT 1 FROM fetches GROUP BY url_id, token HAVING count(*) > 1) AS x`, 0},
		{"canonical URLs", `SELECT count(DISTINCT final_url) FROM fetches WHERE status = 'fetched' AND final_url LIKE '%via=r'`, c.finals},
		{"canonical URLs that no row owns", `SELECT count(*) FROM (SELECT DISTINCT final_url FROM fetches WHERE status = 'fetched' AND final_url <> '') AS f
			LEFT JOIN urls u ON u.url = f.final_url WHERE u.id IS NULL`, 0},
		{"rows that own a canonical URL", `SELECT count(*) FROM urls WHERE url LIKE '%via=r'`, c.finals},
		{"hosts with a fetch in flight", `SELECT count(*) FROM hosts WHERE in_flight <> 0`, 0},
		{"crashes of one URL beyond 3", `SELECT count(*) FROM urls WHERE crash_count > 3`, 0},
	} {
		if got := c.count(row.query); got != row.want {
			c.Errorf("%s: %d, want %d", row.what, got, row.want)
		}
	}
}

// polite fails the test for every request that was too early. It ignores requests that are
// early only because the previous client was killed: the origin notices that a moment late.
func (c *crawl) polite() {
	c.Helper()
	const shown = 5
	visits := c.site.Visits()
	early := 0
	for _, v := range site.Early(visits, c.delay, nil) {
		if v.Before.Left && v.By <= c.delay {
			continue
		}
		if early++; early <= shown {
			c.Errorf("too early: %v", v)
		}
	}
	if early > shown {
		c.Errorf("%d requests were too early in total", early)
	}
}

// outcomes compares the lines of all workers with the table and returns their number.
func (c *crawl) outcomes() int {
	c.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "*.jsonl"))
	must(c, err)
	recorded := c.digests()
	fetched := make(map[int64]string)
	n := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(c, err)
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); n++ {
			var r frontier.Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				c.Errorf("%s: %v in %q", file, err, lines.Text())
				continue
			}
			if r.Status != "fetched" {
				continue
			}
			if before, twice := fetched[r.ID]; twice {
				c.Errorf("two lines report that URL %d was fetched:\n%s\n%s", r.ID, before, lines.Text())
			}
			fetched[r.ID] = lines.Text()
			if want, ok := recorded[r.ID]; !ok || want != r.BodySHA256 {
				c.Errorf("the body digest is %q in the table, %q in the line %s", want, r.BodySHA256, lines.Text())
			}
		}
	}
	return n
}

// digests returns the digests of the bodies, by the id of the URL.
func (c *crawl) digests() map[int64]string {
	c.Helper()
	rows, err := c.db.QueryContext(c.ctx, `SELECT url_id, body_digest FROM fetches WHERE status = 'fetched' ORDER BY body_digest`)
	must(c, err)
	defer rows.Close()
	found := make(map[int64]string)
	for rows.Next() {
		var id int64
		var digest string
		must(c, rows.Scan(&id, &digest))
		found[id] = digest
	}
	must(c, rows.Err())
	return found
}

// bodies compares each file in dir with its name, and the table with the files. It returns
// the number of bodies.
func (c *crawl) bodies(dir string) int {
	c.Helper()
	there := make(map[string]bool)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return nil
		}
		var body []byte
		if err == nil {
			body, err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // a worker has just removed an unfinished body
			return nil
		}
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		name := d.Name()
		switch {
		case name == hex.EncodeToString(sum[:]):
			there[name] = true
		case len(name) == hex.EncodedLen(len(sum)):
			c.Errorf("body %s has another SHA-256: %x", name, sum)
		default:
			c.Logf("left behind: %s, %d bytes", name, len(body)) // by a process that was killed while it wrote
		}
		return nil
	})
	must(c, err)
	for id, digest := range c.digests() {
		if digest != "" && !there[digest] {
			c.Errorf("URL %d: body %q is missing", id, digest)
		}
	}
	return len(there)
}
