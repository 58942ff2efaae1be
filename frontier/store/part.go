package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// watchEvery is how long a call that can be repeated waits for one of many databases, before it looks whether that
	// answers at all.
	watchEvery = 500 * time.Millisecond
	// answerTime is how long a database may need to answer then.
	answerTime = time.Second
	// repeatTime is how long a worker waits for what it repeats anyway.
	repeatTime = time.Second
	// partPause is how long a database is left alone after it could not be reached, or did not answer.
	partPause = time.Second
)

// do calls f, unless the database could not be reached a moment ago. If watched is true, f ends when the database no
// longer answers. Slow calls do not end.
func (p *part) do(ctx context.Context, watched bool, f func(ctx context.Context) error) error {
	if !p.reachable() {
		return fmt.Errorf("database %d (%s): %w", p.number, p.name, ErrUnreachable)
	}
	inner := ctx
	if watched && p.dsn != "" {
		var cancel context.CancelFunc
		inner, cancel = context.WithCancel(ctx)
		defer cancel()
		go p.watch(inner, cancel)
	}
	err := f(inner)
	// A host that is taken away during a put has no id (23502).
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == movedCode || pg.Code == "23502" && pg.ColumnName == "host_id") {
		select {
		case p.changed <- struct{}{}:
		default: // the table will be read soon
		}
		return fmt.Errorf("database %d (%s): %w: %w", p.number, p.name, ErrUnreachable, err)
	}
	unreachable := err != nil && ctx.Err() == nil && (isUnreachable(err) || inner.Err() != nil)
	switch {
	case unreachable:
		p.fail()
		return fmt.Errorf("database %d (%s): %w: %w", p.number, p.name, ErrUnreachable, err)
	case err != nil:
		return fmt.Errorf("database %d (%s): %w", p.number, p.name, err)
	}
	return nil
}

// reachable reports whether the database may be called.
func (p *part) reachable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failed
}

// watch cancels a call if the database does not answer meanwhile. One that is stopped keeps its connections, so the call
// would wait for it.
func (p *part) watch(ctx context.Context, cancel context.CancelFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
		if err := p.answers(ctx); err != nil {
			cancel()
		}
	}
}

// answers returns an error if the database does not answer. It has its own connection, because all others may be in use.
func (p *part) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.dsn)
	if known, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(known.Code, "53") {
		return nil // it has no more connections
	}
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// fail stops calls to the database until it answers. No call finds that out, because it would wait.
func (p *part) fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed || p.open == nil { // an administrator's command does not wait
		return
	}
	p.failed = true
	p.late.Go(func() {
		for {
			select {
			case <-p.open.Done():
				return
			case <-time.After(partPause):
			}
			if p.answers(p.open) == nil {
				p.mu.Lock()
				p.failed = false
				p.mu.Unlock()
				return
			}
		}
	})
}

// isUnreachable reports whether an error says that a database cannot be reached or written, and not that a statement
// is wrong.
func isUnreachable(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	if known, ok := errors.AsType[*pgconn.PgError](err); ok && !connect {
		// 08: connection. 25006: a standby. 53: resources. 57P: shutdown.
		return strings.HasPrefix(known.Code, "08") || known.Code == "25006" || strings.HasPrefix(known.Code, "53") || strings.HasPrefix(known.Code, "57P")
	}
	_, network := errors.AsType[net.Error](err)
	return network || connect || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}

// movedCode is the code of an error of frontier_own_host.
const movedCode = "FR001"
