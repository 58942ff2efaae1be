package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Robots is what is known of an origin's robots.txt. Status, ErrorClass and
// Unreachable are of the last try. Body is of the last answer, which is an earlier
// one if the origin is unreachable now.
type Robots struct {
	Origin      string // scheme://host, and :port unless it is the scheme's own
	Status      int    // zero if there was no response
	ErrorClass  string // empty if nothing went wrong
	Unreachable bool   // neither a file nor a refusal came: a 5xx, or no response
	Body        []byte // at most 512 KiB

	// What follows is told by Robots, and not read by SaveRobots.

	Forgotten      bool          // by RetryFailed: it is asked for again; Age is then very long
	HasBody        bool          // there was an answer; its Body may still be empty
	BodySize       int           // in bytes
	BodyStatus     int           // of that answer
	Age            time.Duration // since the last try was saved
	UnreachableFor time.Duration // since the first of the tries without an answer; zero if reachable
}

// maxRobots is more than RFC 9309 wants to be read, which is 500 KiB.
const maxRobots = 512 << 10

// SaveRobots implements [Store].
func (c *core) SaveRobots(ctx context.Context, r Robots) error {
	r.Origin = clean(r.Origin)
	if len(r.Body) > maxRobots {
		return fmt.Errorf("save robots.txt of %s: it has %d bytes, cut it to %d", r.Origin, len(r.Body), maxRobots)
	}
	if r.Body == nil {
		r.Body = []byte{} // not NULL
	}
	var err error
	if r.Unreachable {
		_, err = c.update(ctx, `INSERT INTO robots (origin, saved_at, status, error_class, unreachable_since)
			SELECT ?, t.now, ?, ?, t.now FROM (SELECT {now} AS now) AS t WHERE TRUE
			ON CONFLICT (origin) DO UPDATE SET saved_at = excluded.saved_at, status = excluded.status, error_class = excluded.error_class,
				unreachable_since = CASE WHEN robots.unreachable_since = 0 THEN excluded.unreachable_since ELSE robots.unreachable_since END`,
			r.Origin, r.Status, clean(r.ErrorClass))
	} else {
		_, err = c.update(ctx, `INSERT INTO robots (origin, saved_at, status, error_class, has_body, body_status, body)
			VALUES (?, {now}, ?, ?, TRUE, ?, ?)
			ON CONFLICT (origin) DO UPDATE SET saved_at = excluded.saved_at, status = excluded.status, error_class = excluded.error_class,
				unreachable_since = 0, has_body = TRUE, body_status = excluded.body_status, body = excluded.body`,
			r.Origin, r.Status, clean(r.ErrorClass), r.Status, r.Body)
	}
	if err != nil {
		return fmt.Errorf("save robots.txt of %s: %w", r.Origin, err)
	}
	return nil
}

// Robots implements [Store].
func (c *core) Robots(ctx context.Context, origins []string) (map[string]Robots, error) {
	return c.robots(ctx, origins, "body")
}

// RobotsHeads implements [Store].
func (c *core) RobotsHeads(ctx context.Context, origins []string) (map[string]Robots, error) {
	return c.robots(ctx, origins, "NULL")
}

// robots reads rows. body is the SQL expression for the body column.
func (c *core) robots(ctx context.Context, origins []string, body string) (map[string]Robots, error) {
	found, err := c.robotsRows(ctx, origins, body)
	if err != nil {
		return nil, fmt.Errorf("read robots.txt of %d origins: %w", len(origins), err)
	}
	return found, nil
}

func (c *core) robotsRows(ctx context.Context, origins []string, body string) (map[string]Robots, error) {
	wanted := make([]string, len(origins))
	for i, origin := range origins {
		wanted[i] = clean(origin)
	}
	list, err := toJSON(wanted)
	if err != nil {
		return nil, err
	}
	rows, err := c.db.QueryContext(ctx, c.say(`SELECT origin, status, error_class, unreachable_since <> 0, `+body+`, length(body), has_body, body_status,
			{now} - saved_at, saved_at = 0, CASE WHEN unreachable_since = 0 THEN 0 ELSE {now} - unreachable_since END
		FROM robots WHERE origin {among}`), list)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has the error
	found := make(map[string]Robots)
	for rows.Next() {
		var r Robots
		var age, unreachable int64
		err := rows.Scan(&r.Origin, &r.Status, &r.ErrorClass, &r.Unreachable, &r.Body, &r.BodySize, &r.HasBody, &r.BodyStatus, &age, &r.Forgotten, &unreachable)
		if err != nil {
			return nil, err
		}
		r.Age, r.UnreachableFor = time.Duration(age)*time.Millisecond, time.Duration(unreachable)*time.Millisecond
		found[r.Origin] = r
	}
	return found, rows.Err()
}

// robotsPiece is how many rows are deleted in one transaction: 8 MiB of files.
const robotsPiece = 16

// ForgetRobots implements [Store].
func (c *core) ForgetRobots(ctx context.Context, origins []string) (deleted int64, err error) {
	for piece := range slices.Chunk(origins, robotsPiece) {
		list, err := toJSON(piece)
		if err != nil {
			return deleted, fmt.Errorf("forget robots.txt: %w", err)
		}
		n, err := c.update(ctx, `DELETE FROM robots WHERE origin {among} AND {vacant}`, list)
		if err != nil {
			return deleted, fmt.Errorf("forget robots.txt of %d origins: %w", len(piece), err)
		}
		deleted += n
	}
	return deleted, nil
}

// behindRedirect ends the LastError of a URL that was ended by the robots.txt of an
// origin where a redirect led.
const behindRedirect = "/robots.txt, where a redirect leads"

// BehindRedirect returns the words that end a LastError which comes of the robots.txt
// of another origin than the URL's. RetryFailed finds that file by them.
func BehindRedirect(origin string) string { return ", of " + origin + behindRedirect }

// verdictOrigins returns the origins whose robots.txt can have ended a URL of host.
func verdictOrigins(host, lastError string) []string {
	if text, ok := strings.CutSuffix(lastError, behindRedirect); ok {
		if i := strings.LastIndex(text, ", of "); i >= 0 {
			return []string{text[i+len(", of "):]}
		}
	}
	return []string{"http://" + host, "https://" + host}
}

// forgetVerdicts has robots.txt asked for again, by whichever worker needs it next, of
// every origin whose file ended a URL in class, or in any class if that is empty.
func (c *core) forgetVerdicts(ctx context.Context, class string) error {
	origins, err := c.verdicts(ctx, class)
	if err != nil {
		return fmt.Errorf("look for robots.txt that ended URLs: %w", err)
	}
	const piece = 500 // rows in one transaction
	for some := range slices.Chunk(origins, piece) {
		list, err := toJSON(some)
		if err != nil {
			return fmt.Errorf("forget robots.txt: %w", err)
		}
		if _, err := c.update(ctx, `UPDATE robots SET saved_at = 0 WHERE origin {among}`, list); err != nil {
			return fmt.Errorf("forget what robots.txt of %d origins said: %w", len(some), err)
		}
	}
	return nil
}

// verdicts returns the origins of forgetVerdicts in their order.
func (c *core) verdicts(ctx context.Context, class string) ([]string, error) {
	rows, err := c.db.QueryContext(ctx, c.say(`SELECT DISTINCT h.host, CASE WHEN u.last_error LIKE ? THEN u.last_error ELSE '' END
		FROM urls u JOIN hosts h ON h.id = u.host_id
		WHERE u.status IN ('failed', 'dead') AND ? IN ('', u.error_class) AND u.last_error LIKE '%robots%'`), "%"+behindRedirect, class)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells all
	var origins []string
	for rows.Next() {
		var host, lastError string
		if err := rows.Scan(&host, &lastError); err != nil {
			return nil, err
		}
		origins = append(origins, verdictOrigins(host, lastError)...)
	}
	slices.Sort(origins)
	return slices.Compact(origins), rows.Err()
}

// SweepRobots implements [Store].
func (c *core) SweepRobots(ctx context.Context, after string, age time.Duration) (next string, deleted int64, err error) {
	vacant, next, err := c.vacant(ctx, after, age)
	if err != nil {
		return after, 0, fmt.Errorf("look for robots.txt of hosts without URLs: %w", err)
	}
	deleted, err = c.ForgetRobots(ctx, vacant)
	return next, deleted, err
}

// vacant returns the rows after an origin that SweepRobots must delete, and the last row
// that it looked at, or an empty one at the end.
func (c *core) vacant(ctx context.Context, after string, age time.Duration) (vacant []string, next string, err error) {
	const page = 500
	rows, err := c.db.QueryContext(ctx, c.say(`SELECT origin, saved_at <= {now} - ? AND {vacant} FROM robots
		WHERE origin > ? ORDER BY origin LIMIT ?`), millis(age), clean(after), page)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	seen := 0
	for ; rows.Next(); seen++ {
		var unused bool
		if err := rows.Scan(&next, &unused); err != nil {
			return nil, "", err
		}
		if unused {
			vacant = append(vacant, next)
		}
	}
	if seen < page {
		next = ""
	}
	return vacant, next, rows.Err()
}
