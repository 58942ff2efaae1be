package api_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/frontier/v1"
)

// TestNoUnsetEnums takes URLs through all states, and checks that no response has an enum without a value.
func TestNoUnsetEnums(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	seen := map[protoreflect.FullName]bool{} // values of enums
	check := func(m proto.Message, err error) {
		t.Helper()
		must(t, err)
		checkEnums(t, m.ProtoReflect(), seen)
	}
	urls := []string{"http://a.test/", "http://b.test/", "http://c.test/", "http://d.test/", "http://e.test/map"}
	why := func() {
		t.Helper()
		for _, u := range urls {
			check(r.Why(t.Context(), &pb.WhyRequest{Url: u}))
		}
	}
	in := &pb.PutRequest{Entries: []*pb.Entry{{Url: urls[4], Kind: pb.Kind_KIND_SITEMAP}}}
	for _, u := range urls[:4] {
		in.Entries = append(in.Entries, &pb.Entry{Url: u})
	}
	check(r.Put(t.Context(), in))
	why() // PENDING

	claimed, err := r.Claim(t.Context(), &pb.ClaimRequest{Limit: 5, IncludeSitemaps: true})
	check(claimed, err)
	if len(claimed.GetClaims()) != 5 {
		t.Fatalf("Claim = %v, want 5 URLs", claimed)
	}
	why() // FETCHING

	leases := map[string]*pb.Lease{}
	for _, c := range claimed.GetClaims() {
		leases[c.GetUrl()] = c.GetLease()
	}
	outcomes := []*pb.Outcome{
		{Lease: leases[urls[0]], Status: pb.Status_STATUS_FETCHED},
		{Lease: leases[urls[1]], Status: pb.Status_STATUS_FAILED, RetryDelay: durationpb.New(time.Hour)},
		{Lease: leases[urls[2]], Status: pb.Status_STATUS_DEAD},
		{Lease: &pb.Lease{Id: leases[urls[3]].GetId(), Token: 1}, Status: pb.Status_STATUS_DEAD}, // STALE
		{Lease: leases[urls[4]], Status: pb.Status_STATUS_FETCHED, FinalUrl: "not absolute"},     // INVALID
	}
	check(r.Record(t.Context(), &pb.RecordRequest{Outcomes: outcomes}))
	why() // the final ones

	stream, err := r.Watch(t.Context(), &pb.WatchRequest{After: "0"})
	must(t, err)
	for n := 0; n < 3; {
		m, err := stream.Recv()
		check(m, err)
		n += len(m.GetOutcomes())
	}
	enums := pb.File_frontier_v1_frontier_proto.Enums()
	for i := range enums.Len() {
		for j := range enums.Get(i).Values().Len() {
			if v := enums.Get(i).Values().Get(j); v.Number() != 0 && !seen[v.FullName()] {
				t.Errorf("%s was in no response", v.Name())
			}
		}
	}
}

// checkEnums fails the test if an enum in m is zero, and adds the values to seen.
func checkEnums(t *testing.T, m protoreflect.Message, seen map[protoreflect.FullName]bool) {
	t.Helper()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		var values []protoreflect.Value
		switch {
		case f.IsList():
			for j := range m.Get(f).List().Len() {
				values = append(values, m.Get(f).List().Get(j))
			}
		case f.Message() == nil || m.Has(f):
			values = append(values, m.Get(f))
		}
		for _, v := range values {
			switch {
			case f.Message() != nil:
				checkEnums(t, v.Message(), seen)
			case f.Enum() != nil && v.Enum() == 0:
				t.Errorf("%s is not set in %v", f.FullName(), m)
			case f.Enum() != nil:
				seen[f.Enum().Values().ByNumber(v.Enum()).FullName()] = true
			}
		}
	}
}
