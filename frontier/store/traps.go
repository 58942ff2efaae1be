package store

import (
	"context"
	"fmt"
)

// Twins are the pages with the same body as another one.
type Twins struct {
	Linked bool // a page has the link to it, and not a sitemap or a caller
	Parent bool // that page is of the same host and has the same body
	Others int  // pages of its host with the same body, up to a limit
}

// Twins implements [Store].
func (s *core) Twins(ctx context.Context, c Claim, digest int64, limit int) (t Twins, err error) {
	err = s.db.QueryRow(ctx, `SELECT COALESCE(p.kind = 0, FALSE), COALESCE(p.digest = ? AND p.host_id = u.host_id, FALSE), (SELECT count(*) FROM (SELECT 1 FROM urls
			WHERE digest = ? AND digest <> 0 AND host_id = u.host_id AND id <> u.id LIMIT ?) AS x)
		FROM urls u LEFT JOIN urls p ON p.id = u.parent_id WHERE u.id = ?`, digest, digest, limit, c.ID).Scan(&t.Linked, &t.Parent, &t.Others)
	if err != nil {
		return Twins{}, fmt.Errorf("look for pages with the same body: %w", err)
	}
	return t, nil
}

// Pattern is how many URLs of a host have one pattern.
type Pattern struct {
	Host, Pattern string
	URLs          int64
}

// AddPattern implements [Store].
func (s *core) AddPattern(ctx context.Context, p Pattern) (total int64, err error) {
	_, err = s.db.One(ctx, `INSERT INTO patterns (host, pattern, urls) VALUES (?, ?, ?)
		ON CONFLICT (host, pattern) DO UPDATE SET urls = patterns.urls + excluded.urls RETURNING urls`, []any{clean(p.Host), clean(p.Pattern), p.URLs}, &total)
	if err != nil {
		return 0, fmt.Errorf("count URLs of a pattern: %w", err)
	}
	return total, nil
}

// Pattern implements [Store].
func (s *core) Pattern(ctx context.Context, host, pattern string) (urls int64, err error) {
	return s.db.Int(ctx, "read a pattern of URLs", `SELECT COALESCE(max(urls), 0) FROM patterns WHERE host = ? AND pattern = ?`, clean(host), clean(pattern))
}

// Patterns implements [Store].
func (s *core) Patterns(ctx context.Context, atLeast int64, limit int) ([]Pattern, error) {
	rows, err := s.db.Query(ctx, `SELECT host, pattern, urls FROM patterns WHERE urls >= ? ORDER BY urls DESC, host, pattern LIMIT ?`, atLeast, limit)
	found, err := collect(rows, err, func(p *Pattern) []any { return []any{&p.Host, &p.Pattern, &p.URLs} })
	if err != nil {
		return nil, fmt.Errorf("read patterns of URLs: %w", err)
	}
	return found, nil
}
