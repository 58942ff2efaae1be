package get

import (
	"errors"
	"fmt"
	"time"

	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// history is what has happened in a fetch, for the message of an interrupted one.
type history struct {
	begun   time.Time // of the fetch
	attempt int32     // that has started last
	ended   *pb.AttemptFinished
	endTime time.Time // of ended
	body    int64     // bytes of the body so far
}

// take records an event.
func (h *history) take(m *pb.FetchEvent) {
	now := time.Now()
	if h.begun.IsZero() {
		h.begun = now.Add(-m.GetElapsedOffset().AsDuration())
	}
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_AttemptStarted:
		h.attempt = e.AttemptStarted.GetAttempt()
	case *pb.FetchEvent_AttemptFinished:
		h.ended, h.endTime = e.AttemptFinished, now
	case *pb.FetchEvent_BodyChunk:
		h.body = e.BodyChunk.GetOffsetBytes() + int64(len(e.BodyChunk.GetData()))
	}
}

// interrupted returns the error of a fetch that a signal ended. brief leaves out the attempts. once means
// that the request may have taken effect, and must not be sent twice.
func (h *history) interrupted(brief, once bool) error {
	if h.attempt == 0 {
		return &cli.Error{Code: cli.ExitInterrupted, Err: errors.New("interrupted before the first attempt")}
	}
	after := show.Took(time.Since(h.begun))
	e := &cli.Error{Code: cli.ExitInterrupted}
	retry := h.ended.GetRetryDecision().GetRetry()
	switch {
	case retry != nil && h.ended.GetAttempt() == h.attempt:
		left := max(retry.GetDelay().AsDuration()-time.Since(h.endTime), 0)
		e.Err = fmt.Errorf("interrupted after %s, %s before attempt %d", after, show.Took(left), retry.GetAttempt())
	case h.body > 0:
		e.Err = fmt.Errorf("interrupted after %s in attempt %d, after %s of the body", after, h.attempt, show.Size(h.body))
	default:
		e.Err = fmt.Errorf("interrupted after %s in attempt %d, before the body", after, h.attempt)
	}
	if once {
		e.Err = fmt.Errorf("%w; the request may have taken effect: find out before you send it again", e.Err)
	}
	if h.ended != nil && !brief {
		e.Hint = fmt.Sprintf("%s had ended; the last one: %s", cli.Count(int(h.ended.GetAttempt()), "attempt"), show.Ended(h.ended))
	}
	return e
}
