package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
