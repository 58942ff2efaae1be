package frontier

import (
	"testing"

	pb "fetchd/gen/fetchd/v1"
)

// TestWhole checks which successes count as failures, because their body is not that of the URL.
func TestWhole(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		body   *pb.BodySummary
		reason string // empty: it stays a success
	}{
		{"a body", &pb.BodySummary{}, ""},
		{"no summary", nil, ""},
		{"a part", &pb.BodySummary{PartialContent: true}, "partial_content"},
		{"followed by more bytes", &pb.BodySummary{UnrequestedData: true}, "unrequested_data"},
		{"both", &pb.BodySummary{PartialContent: true, UnrequestedData: true}, "unrequested_data"},
	} {
		o := whole(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, BodySummary: row.body})
		failed := o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED
		if o.GetError().GetReason() != row.reason || failed != (row.reason != "") || o.GetError().GetRetryable() != failed {
			t.Errorf("%s: %s, %+v; want reason %q", row.name, o.GetKind(), o.GetError(), row.reason)
		}
	}
	o := whole(&pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, BodySummary: &pb.BodySummary{UnrequestedData: true}})
	if o.GetError() != nil {
		t.Errorf("a failure got the error %+v", o.GetError())
	}
}
