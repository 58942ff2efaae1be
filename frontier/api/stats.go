package api

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

const (
	maxStatsHosts     = 100
	defaultStatsHosts = 10
	// statsAge is how old counts may be. If counting takes long, they may be statsShare times as old as
	// that takes, so that it uses only a part of the database.
	statsAge   = 2 * time.Second
	statsShare = 10
)

// cachedStats are counts, which all callers share.
type cachedStats struct {
	store.Stats
	until time.Time
}

func (s *service) readStats(ctx context.Context, in *pb.StatsRequest) (*pb.StatsResponse, error) {
	var v badrequest.Violations
	hosts := int(badrequest.Integer(&v, "max_hosts", &in.MaxHosts, 0, 0, maxStatsHosts))
	if err := v.Err(); err != nil {
		return nil, err
	}
	hosts = cmp.Or(hosts, defaultStatsHosts)
	now, err := s.cached(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.StatsResponse{PendingCount: now.Pending, FetchingCount: now.Fetching, FetchedCount: now.Fetched, FailedCount: now.Failed, DeadCount: now.Dead,
		HostCount: now.Hosts, InFlightHostCount: now.HostsInFlight, BlockedHostCount: now.HostsBlocked, PausedHostCount: now.HostsPaused, DueHostCount: now.HostsDue, Paused: now.Paused,
		LastMinuteOutcomeCount: now.LastMinute.Outcomes, LastMinuteBodyBytes: now.LastMinute.Bytes, BodyBytes: now.Bytes,
		SlowestHosts: hostsOf(now.Slowest, hosts), ClosedHosts: hostsOf(now.Closed, hosts), CountTime: timestamppb.New(now.Now)}
	for _, c := range now.Classes {
		out.ErrorClasses = append(out.ErrorClasses, &pb.ClassCount{ErrorClass: c.Class, FailedCount: c.Failed, DeadCount: c.Dead})
	}
	for _, w := range now.Workers {
		out.Workers = append(out.Workers, &pb.WorkerStats{Worker: w.Name, ClaimedCount: w.Claims, LastSeenTime: timeOf(w.Seen), Vanished: w.Vanished})
	}
	return out, nil
}

// cached returns counts. One caller reads them, and the others wait for it.
func (s *service) cached(ctx context.Context) (*store.Stats, error) {
	var last cachedStats
	select {
	case last = <-s.stats:
		defer func() { s.stats <- last }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	if began.Before(last.until) {
		return &last.Stats, nil
	}
	now, err := s.store.Stats(ctx, maxStatsHosts)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	last = cachedStats{now, began.Add(took + max(statsAge, statsShare*took))}
	return &now, nil
}

func hostsOf(all []store.HostStats, limit int) []*pb.HostStats {
	var out []*pb.HostStats
	for _, h := range all[:min(limit, len(all))] {
		out = append(out, &pb.HostStats{Host: h.Host, FetchCount: h.Fetches, FailureCount: h.Failures, MeanFetchDuration: meanOf(h.Duration, h.Fetches),
			BodyBytes: h.Bytes, BlockEndTime: timeOf(h.BlockedUntil), Paused: h.Paused, InFlightCount: int32(h.InFlight)})
	}
	return out
}

func (s *service) why(ctx context.Context, in *pb.WhyRequest) (*pb.WhyResponse, error) {
	var v badrequest.Violations
	url, err := normal.NormalizeURL(in.GetUrl()) // it limits the length
	if err != nil {
		v.Add("url", "is not a URL (%.200s): give an absolute one, with http:// or https://", err)
		return nil, v.Err()
	}
	found, err := why.Ask(ctx, s.store, s.userAgent, url)
	if err != nil {
		return nil, err
	}
	reason := why.ReasonOf(found)
	u, ready := found.URL, found.URL.ReadyAt
	if found.Deferred.After(ready) {
		ready = found.Deferred
	}
	out := &pb.WhyResponse{Reasons: []string{reason.Text}, ReasonCode: reason.Code, Url: u.URL, Host: u.Host, Status: statuses[u.Status],
		Kind: kindOf(u.Kind), Priority: int32(u.Priority), Depth: int32(u.Depth), ParentUrl: u.ParentURL, Metadata: u.Metadata,
		ErrorClass: u.ErrorClass, LastError: u.LastError, StatusCode: int32(u.HTTPStatus), FailureCount: int32(u.FailureCount), CrashCount: int32(u.CrashCount),
		ReadyTime: later(ready, found.Now), Worker: u.Worker, LeaseExpireTime: timeOf(u.LeaseUntil), FetchTime: timeOf(u.FetchedAt)}
	open := found.Host.NextAt
	if found.Host.BlockedUntil.After(open) {
		open = found.Host.BlockedUntil
	}
	out.HostOpenTime = later(open, found.Now)
	return out, nil
}
