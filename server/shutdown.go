package server

import (
	"cmp"
	"context"
	"time"
)

const (
	// watchGrace is how long health watches may report that the server stops.
	watchGrace = time.Second
	// idleWatchGrace is the same while no call is in flight.
	idleWatchGrace = 250 * time.Millisecond
	// idleGrace is how long connections may stay open while no call is in flight. A
	// live client has answered the GOAWAY by then.
	idleGrace = 500 * time.Millisecond
	// lateGrace replaces idleGrace once ctx is done. It is for answers that are still
	// being written.
	lateGrace = 50 * time.Millisecond
	// cutGrace is how long callers may still read outcomes after that.
	cutGrace = 250 * time.Millisecond
	// idleEvery is how often a drain checks whether a call is in flight.
	idleEvery = 10 * time.Millisecond
)

// Shutdown stops the server: health turns NOT_SERVING, new calls get UNAVAILABLE,
// fetches that wait end as SHUTDOWN, and the others may finish. Those in flight shortly
// before the deadline of ctx (by the reserve of spec §9), or when ctx is canceled, end as
// SHUTDOWN too, and their callers get the outcomes. Callers that do not read them are cut
// off 250 ms after ctx is done. Without a call in flight, open connections delay the end
// by at most half a second. The HTTP endpoint stops last, so that it can be asked for
// metrics and readiness until then.
//
// Shutdown returns nil if every fetch finished by itself. Otherwise it returns the error
// of ctx, or [context.DeadlineExceeded] if its deadline is only near.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.drain()
	defer s.service.Rejected.Flush()
	defer s.service.client.Close()
	defer s.service.workers.Close()
	defer s.watch()
	defer time.AfterFunc(watchGrace, s.watch).Stop()
	defer s.end()
	cut, drop := context.WithCancel(context.Background())
	defer drop()
	done := make(chan struct{})
	go func() { // ends once the connections are closed
		defer close(done)
		s.grpc.GracefulStop()
		if s.web.Shutdown(cut) != nil {
			_ = s.web.Close() // its connections are closed anyway
		}
	}()
	if s.finish(ctx, drop, done) {
		return nil
	}
	return cmp.Or(ctx.Err(), context.DeadlineExceeded)
}

// finish waits until done is closed. It ends the calls and connections that would delay
// that, and reports whether every call finished by itself.
func (s *Server) finish(ctx context.Context, drop func(), done <-chan struct{}) bool {
	early, stop := reserve(ctx)
	defer stop()
	nearlyOver, over := early.Done(), ctx.Done()
	finished, grace := true, idleGrace
	var cut <-chan time.Time
	dropping := false
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for busy := time.Now(); ; { // when a call was last in flight
		select {
		case <-done:
			return finished
		case <-nearlyOver:
			nearlyOver = nil
			finished = s.service.client.End() == 0
			s.end()
		case <-over:
			over, grace, cut = nil, lateGrace, time.After(cutGrace)
		case <-cut:
			dropping, finished = true, finished && !s.isBusy()
		case <-tick.C:
		}
		if s.isBusy() {
			busy = time.Now()
		}
		idle := time.Since(busy)
		if idle >= idleWatchGrace {
			s.watch()
		}
		if dropping = dropping || idle >= grace; dropping {
			drop()
			s.listening.Load().DropAll()
			s.listeningWeb.Load().DropAll()
		}
	}
}

// isBusy reports whether a call is in flight, health aside, or an outcome is unread.
func (s *Server) isBusy() bool {
	fetches, _ := s.service.Fetches.Load()
	return fetches > 0 || s.service.InFlight.Load() > 0
}
