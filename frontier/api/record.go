package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

// Limits of the texts of an outcome, in bytes.
const (
	maxClassBytes        = 64
	maxErrorBytes        = 4 << 10
	maxDigestBytes       = 255
	maxETagBytes         = 1 << 10
	maxLastModifiedBytes = 64
	maxContentTypeBytes  = 255
)

func (s *service) record(ctx context.Context, in *pb.RecordRequest) (*pb.RecordResponse, error) {
	var v badrequest.Violations
	if !batch(&v, "outcomes", len(in.GetOutcomes())) {
		return nil, v.Err()
	}
	fetches := make([]store.Fetch, len(in.GetOutcomes()))
	for i, o := range in.GetOutcomes() {
		v.Prefix = badrequest.Indexed("outcomes", i) + "."
		fetches[i] = readOutcome(&v, o)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	each, err := s.store.RecordFetch(ctx, fetches)
	if err != nil {
		return nil, err
	}
	out := &pb.RecordResponse{Results: make([]pb.RecordResult, len(each))}
	for i, err := range each {
		switch {
		case err == nil:
			out.Results[i] = pb.RecordResult_RECORD_RESULT_RECORDED
		case errors.Is(err, store.ErrStale):
			out.Results[i] = pb.RecordResult_RECORD_RESULT_STALE
		default:
			out.Results[i] = pb.RecordResult_RECORD_RESULT_INVALID
		}
	}
	return out, nil
}

func readOutcome(v *badrequest.Violations, o *pb.Outcome) store.Fetch {
	lease := readLease(v, "lease", o.GetLease())
	f := store.Fetch{ID: lease.ID, Status: readStatus(v, o.GetStatus()), FinalURL: o.GetFinalUrl(), LastError: o.GetLastError(), ErrorClass: o.GetErrorClass(),
		RetryIn: period(v, "retry_delay", o.GetRetryDelay()),
		FetchedParams: store.FetchedParams{Token: lease.Token, HTTPStatus: int(badrequest.Integer(v, "status_code", &o.StatusCode, 0, 0, 999)),
			Attempts: int(badrequest.Integer(v, "attempt_count", &o.AttemptCount, 0, 0, maxFlights)), Duration: period(v, "fetch_duration", o.GetFetchDuration()),
			Bytes: badrequest.Integer(v, "body_bytes", &o.BodyBytes, 0, 0, 1<<62), ETag: o.GetEtag(), LastModified: o.GetLastModified(),
			BodyDigest: o.GetBodyDigest(), RecrawlIn: period(v, "recrawl_delay", o.GetRecrawlDelay()), Content: store.Content{ContentType: o.GetContentType()}}}
	for _, text := range []struct {
		field, text string
		limit       int
	}{
		{"final_url", o.GetFinalUrl(), normal.MaxURLBytes}, {"error_class", o.GetErrorClass(), maxClassBytes}, {"last_error", o.GetLastError(), maxErrorBytes},
		{"body_digest", o.GetBodyDigest(), maxDigestBytes}, {"etag", o.GetEtag(), maxETagBytes}, {"last_modified", o.GetLastModified(), maxLastModifiedBytes},
		{"content_type", o.GetContentType(), maxContentTypeBytes},
	} {
		bounded(v, text.field, text.text, text.limit)
	}
	if f.Status == store.Fetched && (f.ErrorClass != "" || f.LastError != "") {
		v.Add("error_class", "is set, but the URL was fetched: leave error_class and last_error out")
	}
	return f
}

func readStatus(v *badrequest.Violations, sent pb.Status) store.Status {
	switch sent {
	case pb.Status_STATUS_FETCHED:
		return store.Fetched
	case pb.Status_STATUS_FAILED:
		return store.Failed
	case pb.Status_STATUS_DEAD:
		return store.Dead
	}
	v.Add("status", "is %s: give STATUS_FETCHED, STATUS_FAILED or STATUS_DEAD", sent)
	return ""
}

// period reads a time that may be long.
func period(v *badrequest.Violations, field string, d *durationpb.Duration) time.Duration {
	return v.Duration(field, d, 0, 0, maxPeriod)
}
