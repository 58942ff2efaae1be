//go:build linux

package crawls

import (
	"strings"
	"testing"
)

// TestNewer checks that a worker refuses a database that a newer version has used.
func TestNewer(t *testing.T) {
	t.Parallel()
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			ctx := long(t)
			c := newCrawl(ctx, t, dsn(t), 1)
			c.put(1, 1, 0)
			if _, err := c.db.ExecContext(ctx, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)`); err != nil {
				t.Fatal(err)
			}
			w := c.worker()
			w.exits(ctx, 22)
			for _, want := range []string{"newer version of this program", "9999", "Use the version of frontier that was used last"} {
				if !strings.Contains(w.log.String(), want) {
					t.Errorf("the log does not contain %q:\n%s", want, w.log.String())
				}
			}
			if n := c.site.Count(); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
			t.Logf("refused: %s", last(w.log.String(), 2))
		})
	}
}
