package show

import (
	"fmt"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Wait redraws the line each second until stop is called: how long the service still waits before a retry, or
// how long an attempt has taken. stop removes the line. It draws nothing for other events, and unless
// [Progress.Waits] is set. No other method may be called before stop, which may be called twice.
func (p *Progress) Wait(m *pb.FetchEvent) (stop func()) {
	text, first := waitText(m)
	if p == nil || !p.Waits || text == nil {
		return func() {}
	}
	begun, end, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(first)
		defer timer.Stop()
		for {
			select {
			case <-end:
				return
			case <-timer.C:
				p.draw(text(time.Since(begun)))
				timer.Reset(time.Second)
			}
		}
	}()
	return func() {
		if end != nil {
			close(end)
			<-ended
			end = nil
			p.Clear()
		}
	}
}

// waitText returns the text of a wait after some time, and when it is first drawn. It returns nil if nothing
// is waited for after an event.
func waitText(m *pb.FetchEvent) (text func(time.Duration) string, first time.Duration) {
	if started := m.GetAttemptStarted(); started != nil {
		return func(since time.Duration) string {
			return fmt.Sprintf("attempt %d: waiting for the origin, %s", started.GetAttempt(), since.Round(time.Second))
		}, time.Second
	}
	retry := m.GetAttemptFinished().GetRetryDecision().GetRetry()
	if retry.GetDelay().AsDuration() < time.Second {
		return nil, 0
	}
	return func(since time.Duration) string {
		left := max(retry.GetDelay().AsDuration()-since, 0)
		return fmt.Sprintf("attempt %d in %s: %s", retry.GetAttempt(), (left + time.Second - 1).Truncate(time.Second), waitReason(retry))
	}, 0
}

// waitReason says what asked for a wait.
func waitReason(retry *pb.Retry) string {
	if retry.GetDelaySource() == pb.DelaySource_DELAY_SOURCE_RETRY_AFTER {
		return fmt.Sprintf("the origin asked for %s (Retry-After)", retry.GetDelay().AsDuration())
	}
	return fmt.Sprintf("a wait of %s (%s)", retry.GetDelay().AsDuration(), Label(retry.GetDelaySource()))
}
