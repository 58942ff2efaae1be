package mapping_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/conformance"
	"fetchd/conformance/mapping"
)

// TestVerdict checks that a verdict survives as a message of the API.
func TestVerdict(t *testing.T) {
	t.Parallel()
	vectors, err := conformance.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	for i := range vectors {
		want := &vectors[i].Verdict
		if diff := cmp.Diff(want, mapping.Verdict(mapping.ExplainResponse(new(conformance.Observation), want))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", vectors[i].Name, diff)
		}
	}
}
