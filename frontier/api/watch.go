package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

const (
	// watchBatch is the number of outcomes in a message. An outcome may have 25 KiB, and a client of
	// gRPC accepts 4 MiB.
	watchBatch = 100
	watchEvery = 500 * time.Millisecond
)

// watch sends outcomes until the caller has gone or the server stops.
func (s *service) watch(ctx context.Context, in proto.Message, send func(proto.Message) error) error {
	request, _ := in.(*pb.WatchRequest)
	var v badrequest.Violations
	after, err := strconv.ParseInt(cmp.Or(request.GetAfter(), "0"), 10, 64)
	if err != nil || after < 0 {
		v.Add("after", "this is not a cursor: give that of a response, or 0 for all outcomes")
	}
	if err := v.Err(); err != nil {
		return err
	}
	held, leave, err := callerOf(ctx).hold(ctx, watchLimit)
	if err != nil {
		return err
	}
	defer leave()
	if request.GetAfter() == "" {
		if after, err = s.store.LastFetch(ctx); err != nil {
			return err
		}
	}
	if err := send(&pb.WatchResponse{Cursor: strconv.FormatInt(after, 10)}); err != nil {
		return err
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		page, err := s.store.FetchesAfter(ctx, after, watchBatch)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(page, watchBatch) {
			after = some[len(some)-1].ID
			if err := send(outcomesOf(some)); err != nil {
				return err
			}
		}
		if len(page) >= watchBatch && s.stopping.Err() == nil {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-held.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return status.Errorf(codes.ResourceExhausted, "too many watches are in flight: this one was ended for one of another caller: continue with after=%d", after)
		case <-s.stopping.Done():
			return status.Errorf(codes.Unavailable, "the server stops: continue with after=%d", after)
		}
	}
}

func outcomesOf(page []store.WatchedFetch) *pb.WatchResponse {
	out := &pb.WatchResponse{Cursor: strconv.FormatInt(page[len(page)-1].ID, 10)}
	for _, f := range page {
		out.Outcomes = append(out.Outcomes, &pb.RecordedOutcome{Id: f.ID, Url: f.URL, FinalUrl: f.FinalURL, Status: statuses[f.Status], StatusCode: int32(f.HTTPStatus),
			ErrorClass: f.ErrorClass, LastError: f.LastError, AttemptCount: int32(f.Attempts), FetchDuration: durationpb.New(f.Duration), BodyBytes: f.Bytes,
			BodyDigest: f.BodyDigest, ContentType: f.ContentType, EndTime: timestamppb.New(f.EndedAt), Metadata: f.Metadata})
	}
	return out
}

// stalledError returns the status of a call whose answer could not be sent.
func (s *Server) stalledError() error {
	return status.Errorf(codes.Aborted, "the caller has gone, or read nothing for %s", s.config.Stall)
}
