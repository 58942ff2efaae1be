package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// chunkSize is the maximum number of rows that a transaction of a long operation changes. A worker
	// that needs one of their hosts waits until the transaction ends.
	chunkSize = 2000
	// pageSize is the number of ids whose rows a long operation reads at once, without a lock.
	pageSize = 100_000
)

// RetryFailed implements [Store].
func (s *core) RetryFailed(ctx context.Context, class, host string, progress func(done int64)) (int64, error) {
	return s.startAgain(ctx, "retry failed URLs", again{class: class, host: host}, 0, progress)
}

// Refetch implements [Store].
func (s *core) Refetch(ctx context.Context, age time.Duration, host string, progress func(done int64)) (int64, error) {
	return s.startAgain(ctx, "fetch URLs again", again{fetched: true, host: host}, age, progress)
}

// startAgain makes the selected URLs pending. Each chunk is a transaction.
func (s *core) startAgain(ctx context.Context, doing string, a again, age time.Duration, progress func(done int64)) (int64, error) {
	// A URL that is fetched meanwhile is not taken a second time.
	start, err := s.db.Int(ctx, doing, `SELECT {now}`)
	if err != nil {
		return 0, err
	}
	a.until = start - millis(age)
	which, args := `u.status IN ('failed', 'dead') AND ? IN ('', u.error_class)`, []any{a.class}
	if a.fetched {
		which, args = `u.status = 'fetched' AND u.fetched_at <= ?`, []any{a.until}
	}
	done, err := s.inChunks(ctx, a.host, which, args, func(page []urlRow) error {
		return s.forgetVerdicts(ctx, page, start)
	}, func(ids []int64) (int64, error) { return s.own.again(ctx, ids, a) }, progress)
	if err != nil {
		return done, fmt.Errorf("%s: %w", doing, err)
	}
	return done, nil
}

// AbortHost implements [Store].
func (s *core) AbortHost(ctx context.Context, host, class, text string) (done int64, err error) {
	ahead, err := s.closeAhead(ctx, host)
	for until := time.Now().Add(abortTime); err == nil; {
		var n int64
		n, err = s.inChunks(ctx, host, `u.status IN ('pending', 'failed')`, nil, nil, func(ids []int64) (int64, error) {
			return s.own.abort(ctx, ids, clean(class), clean(text))
		}, nil)
		done += n
		if err != nil {
			break
		}
		before := ahead
		if ahead, err = s.closeAhead(ctx, host); err == nil && !before && !ahead || time.Now().After(until) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(abortWait):
		}
	}
	if err != nil {
		return done, fmt.Errorf("give up host %s: %w", host, err)
	}
	return done, nil
}

// closeAhead closes a host for a second if a worker holds more of its URLs than it fetches, so that it gives them back,
// and reports whether it does.
func (s *core) closeAhead(ctx context.Context, host string) (bool, error) {
	n, err := s.db.Update(ctx, "close", `UPDATE hosts SET next_at = {max}(next_at, {now} + 1000) WHERE host = ? AND in_flight > max_in_flight`, host)
	return n > 0, err
}

const (
	// abortTime is how long AbortHost waits for URLs that a worker has claimed ahead, and abortWait between two looks.
	abortTime = 2 * time.Second
	abortWait = 50 * time.Millisecond
)

// urlRow is a URL that a long operation changes.
type urlRow struct {
	id, hostID int64
	host       string // if LastError names a robots.txt, or else empty
	lastError  string // if it ends in behindRedirect, or else empty
}

// inChunks calls change for the ids of the URLs of host, or of any host if that is empty, that which
// selects, and returns the sum of its results. It calls before for each page of rows, and progress
// with the sum after each chunk. Either may be nil.
//
// It reads the rows of a page without a lock, so change must check them again. It returns the URLs of
// a page in the order of hosts, so that a chunk locks few of them.
func (s *core) inChunks(ctx context.Context, host, which string, args []any, before func([]urlRow) error,
	change func(ids []int64) (int64, error), progress func(done int64)) (done int64, err error) {
	for page, err := range s.pagesOf(ctx, host, which, args) {
		if err != nil {
			return done, err
		}
		if before != nil {
			if err := before(page); err != nil {
				return done, err
			}
		}
		slices.SortFunc(page, func(a, b urlRow) int {
			return cmp.Or(cmp.Compare(a.hostID, b.hostID), cmp.Compare(a.id, b.id))
		})
		for chunk := range slices.Chunk(page, chunkSize) {
			ids := make([]int64, len(chunk))
			for i, row := range chunk {
				ids[i] = row.id
			}
			n, err := change(ids)
			if err != nil {
				return done, err
			}
			if done += n; progress != nil {
				progress(done)
			}
		}
	}
	return done, nil
}

// pagesOf yields the URLs that which selects, a page at a time. A page covers a range of ids, so that
// no query reads the whole table. Of one host it covers any ids, because the index of hosts finds its
// URLs.
func (s *core) pagesOf(ctx context.Context, host, which string, args []any) func(yield func([]urlRow, error) bool) {
	return func(yield func([]urlRow, error) bool) {
		last, err := s.db.Int(ctx, "find the last URL", `SELECT COALESCE(max(id), 0) FROM urls`)
		step := int64(pageSize)
		if host != "" {
			which += ` AND u.host_id = (SELECT id FROM hosts WHERE host = ?)`
			args = append(slices.Clone(args), host)
			step = math.MaxInt64 - last
		}
		query := `SELECT u.id, u.host_id, CASE WHEN u.last_error LIKE '%robots%' THEN h.host ELSE '' END,
				CASE WHEN u.last_error LIKE ? THEN u.last_error ELSE '' END
			FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.id > ? AND u.id <= ? AND ` + which + ` ORDER BY u.id LIMIT ?`
		for after := int64(0); err == nil && after < last; {
			var page []urlRow
			rows, queryErr := s.db.Query(ctx, query, slices.Concat([]any{"%" + behindRedirect, after, after + step}, args, []any{pageSize})...)
			page, err = collect(rows, queryErr, func(u *urlRow) []any { return []any{&u.id, &u.hostID, &u.host, &u.lastError} })
			for i := range page {
				page[i].lastError = redirectCause(page[i].lastError) // the rest may be long, and a page has many rows
			}
			after += step
			if len(page) == pageSize {
				after = page[pageSize-1].id
			}
			if len(page) > 0 && err == nil && !yield(page, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// behindRedirect ends the LastError of a URL that the robots.txt of a redirect's target has ended.
const behindRedirect = "/robots.txt, where a redirect leads"

// BehindRedirect returns the end of a LastError that another origin's robots.txt has caused.
// RetryFailed uses it to find that file.
func BehindRedirect(origin string) string { return ", of " + origin + behindRedirect }

// redirectCause returns the end of a LastError that [BehindRedirect] has added, or an empty string.
func redirectCause(lastError string) string {
	text, ok := strings.CutSuffix(lastError, behindRedirect)
	i := strings.LastIndex(text, ", of ")
	if !ok || i < 0 {
		return ""
	}
	return strings.Clone(lastError[i:])
}

// verdictOrigins returns the origins whose robots.txt can have ended a URL of host.
func verdictOrigins(host, lastError string) []string {
	if text, ok := strings.CutSuffix(redirectCause(lastError), behindRedirect); ok {
		return []string{strings.TrimPrefix(text, ", of ")}
	}
	return []string{"http://" + host, "https://" + host}
}

// forgetVerdicts has robots.txt fetched again, by the next worker that needs it, for every origin
// whose file ended one of these URLs. It does not forget a file that was fetched after start.
func (s *core) forgetVerdicts(ctx context.Context, urls []urlRow, start int64) error {
	origins := make(map[string]bool)
	for _, u := range urls {
		if u.host == "" {
			continue
		}
		for _, origin := range verdictOrigins(u.host, u.lastError) {
			origins[origin] = true
		}
	}
	const piece = 500
	_, err := s.updateOrigins(ctx, "forget what robots.txt said", slices.Sorted(maps.Keys(origins)), piece, s.endDeferral,
		`UPDATE robots SET saved_at = 0 WHERE origin {among} AND saved_at <= ?`, start)
	return err
}
