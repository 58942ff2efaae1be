package api

import (
	"context"

	"fetchd/frontier/normal"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/why"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

func (s *service) why(ctx context.Context, in *pb.WhyRequest) (*pb.WhyResponse, error) {
	var v badrequest.Violations
	url, err := normal.NormalizeURL(in.GetUrl()) // it limits the length
	if err != nil {
		v.Add("url", "is not a URL (%.200s): give an absolute one, with http:// or https://", err)
		return nil, v.Err()
	}
	found, err := s.store.Why(ctx, url)
	if err != nil {
		return nil, err
	}
	robots, err := rulebook.Ask(ctx, s.store, s.userAgent, url)
	if err != nil {
		return nil, err
	}
	reason := why.ReasonOf(&why.Evidence{Explanation: found, Robots: robots})
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
