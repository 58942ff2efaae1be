package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/outage"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

// service implements the methods.
type service struct {
	store     store.Store
	userAgent string
	logger    *slog.Logger
	outage    outage.Outage   // of the store
	stopping  context.Context // done when the server stops
	// polls has a token for each kind of claim that waits: with and without sitemaps. Only its holder
	// looks for URLs, so a thousand waiting claims cost the database as much as two.
	polls map[bool]chan struct{}
	stats chan cachedStats // has one element while no call reads the database
}

// storeTime is how long a call may use the database, in addition to its wait.
const storeTime = time.Minute

// statusOf returns the status of an error. Those of the database are only logged, because their text
// may have secrets.
func (s *service) statusOf(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok { // also nil
		return err
	}
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, store.ErrUnknownURL):
		return status.Error(codes.NotFound, "the frontier does not have this URL: put it")
	}
	s.failed(ctx, "use the database", err)
	return status.Error(codes.Unavailable, "the database does not work: retry later; the log of the service has the reason")
}

// failed logs an error of the store, at DEBUG unless it is the first one of an outage.
func (s *service) failed(ctx context.Context, doing string, err error) {
	s.logger.Log(ctx, s.outage.Failed(), "cannot "+doing, slog.Any("error", err))
}

const (
	defaultLease   = 5 * time.Minute
	minLease       = time.Second
	maxLease       = time.Hour
	maxWait        = time.Minute
	maxClaimBytes  = 3 << 20 // a client of gRPC accepts 4 MiB
	minPoll        = 50 * time.Millisecond
	maxPoll        = 500 * time.Millisecond
	maxWorkerBytes = 255
	maxDay         = 24 * time.Hour
	maxFlights     = 1000
	maxPeriod      = 10 * 365 * maxDay
)

func (s *service) claim(ctx context.Context, in *pb.ClaimRequest) (*pb.ClaimResponse, error) {
	var v badrequest.Violations
	params := claimParams{ClaimParams: store.ClaimParams{Worker: in.GetWorker()}, sitemaps: in.GetIncludeSitemaps()}
	params.Limit = int(badrequest.Integer(&v, "limit", &in.Limit, 1, 0, maxBatch))
	params.Lease = v.Duration("lease_duration", in.GetLeaseDuration(), defaultLease, minLease, maxLease)
	wait := v.Duration("max_wait", in.GetMaxWait(), 0, 0, maxWait)
	bounded(&v, "worker", in.GetWorker(), maxWorkerBytes)
	if err := v.Err(); err != nil {
		return nil, err
	}
	params.Worker = cmp.Or(params.Worker, callerOf(ctx).name)
	claims, done, err := s.claimNow(ctx, params)
	if len(claims) == 0 && !done && err == nil && wait > 0 {
		claims, done, err = s.claimLater(ctx, params, wait)
	}
	if err != nil {
		return nil, err
	}
	out, size := &pb.ClaimResponse{Done: done}, 0
	var back []store.Lease
	for _, claim := range claims {
		c := claimOf(claim)
		if size += proto.Size(c); size > maxClaimBytes || ctx.Err() != nil { // the caller does not get it
			back = append(back, claim.Lease)
			continue
		}
		out.Claims = append(out.Claims, c)
	}
	if len(back) > 0 {
		storing, cancel := outlive(ctx)
		defer cancel()
		_, err = s.store.Release(storing, back)
	}
	return out, err
}

// outlive returns a context that outlives the call. A claim or a release that is interrupted may have
// succeeded or not, and URLs that no caller has are not free before their leases end.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTime)
}

type claimParams struct {
	store.ClaimParams
	sitemaps bool
}

// sitemapPause is how long a sitemap is left to callers that read it.
const sitemapPause = 2 * time.Second

// claimNow also reports whether nothing is left to do.
func (s *service) claimNow(ctx context.Context, params claimParams) (claims []store.Claim, done bool, err error) {
	storing, cancel := outlive(ctx)
	defer cancel()
	for {
		claims, err = s.store.Claim(storing, params.ClaimParams)
		if err != nil && len(claims) == 0 {
			return nil, false, err
		}
		if err != nil {
			s.failed(ctx, "claim more URLs", err)
		}
		if len(claims) == 0 {
			left, err := s.store.Left(ctx)
			return nil, !left, err
		}
		if params.sitemaps {
			return claims, false, nil
		}
		var sitemaps []store.Lease
		claims = slices.DeleteFunc(claims, func(c store.Claim) bool {
			if c.Kind == store.Sitemap {
				sitemaps = append(sitemaps, c.Lease)
			}
			return c.Kind == store.Sitemap
		})
		if len(sitemaps) > 0 {
			released, err := s.store.Release(storing, sitemaps)
			if err == nil {
				err = s.store.Postpone(storing, released, sitemapPause)
			}
			if err != nil {
				s.failed(ctx, "release sitemaps: they are free when their leases end", err)
			}
		}
		if len(claims) > 0 {
			return claims, false, nil
		}
	}
}

// claimLater looks for URLs until there are some, or for d, or until the wait must end for one of another
// caller. After the server has begun to stop, or the
// caller has gone, it claims nothing.
func (s *service) claimLater(ctx context.Context, params claimParams, d time.Duration) (claims []store.Claim, done bool, err error) {
	held, leave, err := callerOf(ctx).hold(ctx, waitLimit)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	waiting, cancel := context.WithTimeout(held, d)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	turn := s.polls[params.sitemaps]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-waiting.Done():
		return nil, false, ctx.Err()
	}
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		claims, done, err = s.claimNow(ctx, params)
		if len(claims) > 0 || done || err != nil {
			return claims, done, err
		}
		select {
		case <-time.After(pause):
		case <-waiting.Done():
			return nil, false, ctx.Err()
		}
	}
}

func claimOf(c store.Claim) *pb.Claim {
	return &pb.Claim{Lease: leaseOf(c.Lease), Url: c.URL, Host: c.Host, Kind: kindOf(c.Kind), Priority: int32(c.Priority), Depth: int32(c.Depth), Metadata: c.Metadata,
		FailureCount: int32(c.FailureCount), CrashCount: int32(c.CrashCount), Etag: c.ETag, LastModified: c.LastModified}
}

func leaseOf(l store.Lease) *pb.Lease { return &pb.Lease{Id: l.ID, Token: l.Token} }

func leasesOf(all []store.Lease) []*pb.Lease {
	out := make([]*pb.Lease, len(all))
	for i, l := range all {
		out[i] = leaseOf(l)
	}
	return out
}

func (s *service) extend(ctx context.Context, in *pb.ExtendRequest) (*pb.ExtendResponse, error) {
	var v badrequest.Violations
	leases := readLeases(&v, in.GetLeases())
	d := v.Duration("lease_duration", in.GetLeaseDuration(), defaultLease, minLease, maxLease)
	if err := v.Err(); err != nil {
		return nil, err
	}
	held, err := s.store.Extend(ctx, leases, d)
	return &pb.ExtendResponse{HeldLeases: leasesOf(held)}, err
}

func (s *service) release(ctx context.Context, in *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	var v badrequest.Violations
	leases := readLeases(&v, in.GetLeases())
	if err := v.Err(); err != nil {
		return nil, err
	}
	end := s.store.Release
	if in.GetLost() {
		end = s.store.Abandon
	}
	held, err := end(ctx, leases)
	return &pb.ReleaseResponse{ReleasedLeases: leasesOf(held)}, err
}

func (s *service) block(ctx context.Context, in *pb.BlockRequest) (*pb.BlockResponse, error) {
	var v badrequest.Violations
	host := readHost(&v, in.GetHost())
	after := v.Duration("retry_after", in.GetRetryAfter(), 0, 0, maxDay)
	if err := v.Err(); err != nil {
		return nil, err
	}
	return new(pb.BlockResponse), s.store.Block(ctx, host, after)
}

func (s *service) setDelay(ctx context.Context, in *pb.SetDelayRequest) (*pb.SetDelayResponse, error) {
	var v badrequest.Violations
	host := readHost(&v, in.GetHost())
	params := store.HostParams{Delay: new(v.Duration("delay", in.GetDelay(), -1, 0, maxDay))}
	if n := badrequest.Integer(&v, "max_in_flight", &in.MaxInFlight, 0, 0, maxFlights); n > 0 {
		params.MaxInFlight = new(int(n))
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	return new(pb.SetDelayResponse), s.store.SetHost(ctx, host, params)
}

func (s *service) pause(ctx context.Context, in *pb.PauseRequest) (*pb.PauseResponse, error) {
	return new(pb.PauseResponse), withAnyHost(ctx, in.GetHost(), s.store.Pause)
}

func (s *service) resume(ctx context.Context, in *pb.ResumeRequest) (*pb.ResumeResponse, error) {
	return new(pb.ResumeResponse), withAnyHost(ctx, in.GetHost(), s.store.Resume)
}

// timeOf returns nil for the zero time.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// later returns nil for a time that has passed.
func later(t, now time.Time) *timestamppb.Timestamp {
	if !t.After(now) {
		return nil
	}
	return timestamppb.New(t)
}

func meanOf(sum time.Duration, n int64) *durationpb.Duration {
	return durationpb.New((sum / time.Duration(max(n, 1))).Round(time.Millisecond))
}

// method is a method of the contract. send is called once, or several times for a stream.
type method struct {
	name    string
	path    string // of the HTTP API
	stream  bool
	request func() proto.Message
	call    func(s *service, ctx context.Context, in proto.Message, send func(proto.Message) error) error
}

// unary returns a method with one answer.
func unary[Q any, P interface {
	*Q
	proto.Message
}, R proto.Message](name, path string, call func(*service, context.Context, P) (R, error)) method {
	return method{name: name, path: path, request: func() proto.Message { return P(new(Q)) },
		call: func(s *service, ctx context.Context, in proto.Message, send func(proto.Message) error) error {
			request, _ := in.(P)
			ctx, cancel := context.WithTimeout(ctx, maxWait+storeTime)
			defer cancel()
			out, err := call(s, ctx, request)
			if err != nil {
				return err
			}
			return send(out)
		}}
}

// methods are the methods of the contract.
var methods = []method{
	unary("Put", "/v1/put", (*service).put),
	unary("Claim", "/v1/claim", (*service).claim),
	unary("Extend", "/v1/extend", (*service).extend),
	unary("Record", "/v1/record", (*service).record),
	unary("Release", "/v1/release", (*service).release),
	unary("Block", "/v1/block", (*service).block),
	unary("SetDelay", "/v1/set-delay", (*service).setDelay),
	unary("Pause", "/v1/pause", (*service).pause),
	unary("Resume", "/v1/resume", (*service).resume),
	unary("Why", "/v1/why", (*service).why),
	unary("Stats", "/v1/stats", (*service).readStats),
	{name: "Watch", path: "/v1/watch", stream: true, request: func() proto.Message { return new(pb.WatchRequest) }, call: (*service).watch},
}

// run calls a method.
func (s *service) run(ctx context.Context, m method, in proto.Message, send func(proto.Message) error) error {
	return s.statusOf(ctx, m.call(s, ctx, in, send))
}
