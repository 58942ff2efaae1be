package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
)

const (
	// maxUnread bounds the long answers that are made and not read, in bytes: a
	// call that has its answer counts as a fetch no longer.
	maxUnread = 256 << 20
	// maxUnreadOfCaller of them may be one caller's.
	maxUnreadOfCaller = maxUnread / 4
	// unreadTime is how long one may lie there. Then its connection is closed: it
	// is of no use to its caller either.
	unreadTime = 2 * time.Minute
)

// answers counts the long answers that their callers have not read.
type answers struct {
	hangUp  func(ctx context.Context) // closes the connection of a call
	refused func(reason string)       // counts

	mu      sync.Mutex
	bytes   int64
	callers map[string]int64
}

func newAnswers(hangUp func(ctx context.Context), refused func(reason string)) *answers {
	return &answers{hangUp: hangUp, refused: refused, callers: make(map[string]int64)}
}

// enter refuses a call where too much lies unread.
func (a *answers) enter(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.bytes <= maxUnreadOfCaller: // no caller has more
		return nil
	case a.callers[callerOf(ctx)] > maxUnreadOfCaller:
		return a.refuse(ctx, "this caller does not read the answers it has")
	case a.bytes > maxUnread:
		return a.refuse(ctx, "the server keeps as many unread answers as it may")
	}
	return nil
}

func (a *answers) refuse(ctx context.Context, text string) error {
	const reason = "ANSWERS_UNREAD"
	a.refused(reason)
	return refuse(ctx, reason, text)
}

// load is how many bytes lie unread.
func (a *answers) load() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

// watched returns what is to be sent in place of m: of a short one, with its size
// known to the codec.
func (a *answers) watched(ctx context.Context, m any) any {
	short, ok := m.(sized)
	if !ok {
		message, ok := m.(proto.Message)
		if !ok {
			return m
		}
		short = measured(message)
		m = short
	}
	if short.size <= longAnswer {
		return m
	}
	size := int64(short.size)
	caller := callerOf(ctx)
	a.add(caller, size)
	var gone atomic.Bool
	patience := time.AfterFunc(unreadTime, func() {
		if !gone.Load() {
			a.hangUp(ctx)
		}
	})
	return &unread{short, patience, func() {
		gone.Store(true)
		a.add(caller, -size)
	}}
}

func (a *answers) add(caller string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes += n
	if a.callers[caller] += n; a.callers[caller] == 0 {
		delete(a.callers, caller)
	}
}
