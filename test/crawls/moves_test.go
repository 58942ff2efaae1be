//go:build linux

package crawls

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// lowSlots is how many slots the hosts of [slotted] are in. The command moves the lowest slots of a database, so each
// move of some slots moves hosts.
const lowSlots = 64

// slotted returns names of n hosts below the domain test that are in the lowest slots.
func slotted(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprintf("h%d", i)
		if hash := sha256.Sum256([]byte(name + ".test")); int(hash[0])<<2|int(hash[1])>>6 < lowSlots {
			names = append(names, name)
		}
	}
	return names
}

// mover runs "frontier shards" again and again, kills it with SIGKILL at random moments, and repeats the same command.
type mover struct {
	*crawl
	stop func()
	done chan struct{} // closed at its end

	commands, killed, failed int // that ended by themselves, were killed, and found a database down
	before                   int // version of the table of slots
}

// moves starts a mover of random slots between random databases.
func (c *crawl) moves() *mover {
	c.Helper()
	return c.mover(func(ctx context.Context, m *mover) {
		for ctx.Err() == nil {
			from := rand.IntN(len(c.many))
			to := (from + 1 + rand.IntN(len(c.many)-1)) % len(c.many)
			m.atLast(ctx, "move", "--db", c.dsn, "--from", fmt.Sprint(from), "--to", fmt.Sprint(to), "--slots", fmt.Sprint(1+rand.IntN(6)))
		}
	})
}

// mover starts a mover that does work.
func (c *crawl) mover(work func(ctx context.Context, m *mover)) *mover {
	c.Helper()
	m := &mover{crawl: c, before: c.many.table(c.ctx).Version, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(c.ctx)
	m.stop = func() { cancel(); <-m.done }
	c.Cleanup(m.stop)
	go func() {
		defer close(m.done)
		work(ctx, m)
	}()
	return m
}

// down matches what a command prints if a database is down.
var down = regexp.MustCompile(`failed to connect|failed to receive|terminating connection|starting up|shutting down|recovery mode|unexpected EOF|broken pipe|connection reset|conn closed`)

// atLast runs a command until it ends by itself. It kills one of two runs.
func (m *mover) atLast(ctx context.Context, args ...string) {
	const most = 3 * time.Second
	for ctx.Err() == nil {
		var log rig.Log
		p, err := rig.Start(append([]string{rig.Program("frontier"), "shards"}, args...), nil, log.Add)
		if err != nil {
			m.Errorf("start frontier shards: %v", err)
			return
		}
		life := time.Hour
		if rand.IntN(2) > 0 {
			life = rand.N(most)
		}
		until, cancel := context.WithTimeout(ctx, life)
		code, err := p.ExitCode(until)
		cancel()
		if err != nil {
			p.Signal(syscall.SIGKILL)
			<-p.Gone
			m.killed++
			continue
		}
		if code == 0 {
			m.commands++
			return
		}
		m.failed++
		if !down.MatchString(log.String()) {
			m.Errorf("frontier shards %s: exit code %d:\n%s", strings.Join(args, " "), code, log.String())
		}
		wait.For(ctx, 200*time.Millisecond)
	}
}

// finish ends the moves, and finishes the one that was interrupted. It returns what was done.
func (m *mover) finish() string {
	m.Helper()
	m.stop()
	last := m.many.table(m.ctx)
	m.shards("move")
	table := m.many.table(m.ctx)
	if table.Moving != nil {
		m.Errorf("slot %d still moves", table.Moving.Slot)
	}
	const versions = 3 // of the table, for each slot that moves
	return fmt.Sprintf("%d slots were moved by %d commands; %d were killed, and %d found a database down; the last one was interrupted: %v",
		(table.Version-m.before)/versions, m.commands, m.killed, m.failed, last.Moving != nil)
}

// table is the table of slots.
type table struct {
	Version int
	Slots   []int
	Moving  *struct{ Slot int }
}

// table returns the newest table of slots of all databases.
func (m many) table(ctx context.Context) (newest table) {
	m[0].Helper()
	for _, p := range m {
		db, err := sql.Open("pgx", p.dsn())
		must(p, err)
		for text := range texts(ctx, p.T, db, `SELECT value FROM settings WHERE name = 'shards'`) {
			var one table
			must(p, json.Unmarshal([]byte(text), &one))
			if one.Version > newest.Version {
				newest = one
			}
		}
		must(p, db.Close())
	}
	return newest
}

// TestGrow makes one database two while everything crawls. "frontier shards add" is killed at random moments, and
// repeated. The programs that know one database stop, and are started again with both.
func TestGrow(t *testing.T) {
	ctx := long(t)
	if !all() {
		need.Request(t, "run .ci/run crawls-all", "it runs only in the long form")
	}
	databases := newMany(t, 2)
	var c *crawl
	w := &web{hosts: 40, pages: 100, listed: 20, some: 1, at: func(host, path string) string { return c.site.URL(host, path) }}
	c = newCrawlOf(ctx, t, databases.joined(), 0, site.Config{Page: w.page, Robots: w.robots, Suffix: "test"})
	c.dsn = databases[0].dsn()
	c.add([]string{w.url(0)})
	victims, stop := c.everything(w.url(0), "all")
	c.requests(w.pages / 2)

	c.many = databases[:1]
	growing := c.mover(func(ctx context.Context, m *mover) {
		m.atLast(ctx, "add", "--db", databases[0].dsn(), databases[1].dsn())
	})
	c.many, c.dsn = databases, databases.dsn()
	const message = "this is number 0 of 2: name the others with --db too"
	for _, v := range victims {
		if v.name == "frontier crawl" {
			p := *v.process
			p.exits(ctx, 22)
			if !strings.Contains(p.log.String(), message) {
				t.Errorf("%s does not print %q:\n%s", p.name, message, last(p.log.String(), 5))
			}
			v.start()
		}
	}
	for _, v := range victims {
		if v.name == "frontier serve" {
			v.kill()
			v.start()
		}
	}
	<-growing.done
	databases.join(ctx)
	killed := c.kill(w, victims)
	t.Log(growing.finish())
	c.ends(w, stop, filepath.Join(c.dir, "bodies"), killed)
}

// shards runs a command of "frontier shards" that must succeed.
func (c *crawl) shards(args ...string) {
	c.Helper()
	start(c.T, "frontier shards "+args[0], "frontier", append([]string{"shards", args[0], "--db", c.dsn}, args[1:]...)...).exits(c.ctx, 0)
}
