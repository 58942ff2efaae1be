package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/frontier/work"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

// maxPutWork limits the work for the URLs of a call, as package work counts it. A request of 4 MiB needs
// less, unless hundreds of its URLs have long hosts outside ASCII.
const maxPutWork = 16 << 20

func (s *service) put(ctx context.Context, in *pb.PutRequest) (*pb.PutResponse, error) {
	var v badrequest.Violations
	batch(&v, "entries", len(in.GetEntries()))
	limits := store.Limits{URLs: badrequest.Integer(&v, "max_urls", &in.MaxUrls, 0, 0, 1<<62),
		URLsPerHost: badrequest.Integer(&v, "max_urls_per_host", &in.MaxUrlsPerHost, 0, 0, 1<<62)}
	if err := v.Err(); err != nil {
		return nil, err
	}
	out := new(pb.PutResponse)
	entries, places, err := s.readEntries(ctx, in.GetEntries(), out)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return out, nil
	}
	put, err := s.store.Put(ctx, entries, limits)
	if err != nil {
		return nil, err
	}
	for _, bad := range put.Bad {
		out.BadEntries = append(out.BadEntries, &pb.BadEntry{Index: places[bad.Index], Field: "url", Message: fmt.Sprintf("%.200s", bad.Err)})
	}
	slices.SortFunc(out.BadEntries, func(a, b *pb.BadEntry) int { return cmp.Compare(a.GetIndex(), b.GetIndex()) })
	out.AddedCount, out.KnownCount, out.OverLimitCount = put.Added, put.Known, put.Over+put.OverHost
	return out, nil
}

// readEntries adds what is wrong to out.BadEntries, and returns the other entries with their places.
func (s *service) readEntries(ctx context.Context, sent []*pb.Entry, out *pb.PutResponse) (entries []store.Entry, places []int32, err error) {
	var parents []string
	count := &work.Meter{Limit: maxPutWork, Pause: func(int) error { return context.Cause(ctx) }}
	for i, e := range sent {
		err := count.Spend(normal.Cost(e.GetUrl()) + normal.Cost(e.GetParentUrl()))
		if errors.Is(err, work.ErrLimit) {
			var v badrequest.Violations
			v.Add(fmt.Sprintf("entries[%d]", i), "and those before it have URLs that take too long to read: send fewer in a call")
			return nil, nil, v.Err()
		}
		if err != nil {
			return nil, nil, err
		}
		if e.GetParentUrl() != "" && !slices.Contains(parents[max(0, len(parents)-1):], e.GetParentUrl()) { // links of a page follow each other
			parents = append(parents, e.GetParentUrl())
		}
	}
	ids, err := s.store.IDs(ctx, parents)
	if err != nil {
		return nil, nil, err
	}
	for i, e := range sent {
		place := int32(i) //nolint:gosec // it is less than maxBatch
		if field, message := badEntry(e); field != "" {
			out.BadEntries = append(out.BadEntries, &pb.BadEntry{Index: place, Field: field, Message: message})
			continue
		}
		entry := store.Entry{URL: e.GetUrl(), Priority: int(e.GetPriority()), Depth: int(e.GetDepth()), Parent: ids[e.GetParentUrl()], Metadata: e.GetMetadata()}
		if e.GetKind() == pb.Kind_KIND_SITEMAP {
			entry.Kind = store.Sitemap
		}
		entries, places = append(entries, entry), append(places, place)
	}
	return entries, places, nil
}

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
