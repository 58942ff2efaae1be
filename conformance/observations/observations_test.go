package observations_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"fetchd/conformance"
	"fetchd/conformance/observations"
	"fetchd/test/must"
)

func generated(t *testing.T, seed uint64, count int) []conformance.Vector {
	t.Helper()
	vectors, err := observations.Vectors(seed, count)
	must.Succeed(t, err)
	return vectors
}

func TestSeeds(t *testing.T) {
	t.Parallel()
	one := generated(t, 1, 100)
	if diff := cmp.Diff(one, generated(t, 1, 100)); diff != "" {
		t.Errorf("the same seed gives other observations\n%s", diff)
	}
	if diff := cmp.Diff(one[:10], generated(t, 1, 10)); diff != "" {
		t.Errorf("the count changes observations\n%s", diff)
	}
	if cmp.Equal(one[0].Observation, generated(t, 2, 1)[0].Observation) {
		t.Error("another seed gives the same observation")
	}
}

// TestSchema checks that observations are valid by the schema of the vectors.
func TestSchema(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("../schema/vectors.json")
	must.Succeed(t, err)
	vectors := generated(t, 3, 2000)
	for i := range vectors {
		vectors[i].Rule, vectors[i].Verdict = "H0", conformance.Verdict{Outcome: "success", Decision: &conformance.Decision{Rule: "H0", Stop: "no_failure"}}
	}
	text, err := json.Marshal(map[string]any{"about": "a test", "vectors": vectors})
	must.Succeed(t, err)
	decoded, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	must.Succeed(t, err)
	if err := schema.Validate(decoded); err != nil {
		t.Error(err)
	}
}

// TestSpace checks that the observations have everything that the vectors have.
func TestSpace(t *testing.T) {
	t.Parallel()
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	want, got := seen(vectors), seen(generated(t, 4, 20_000))
	for what := range want {
		if !got[what] {
			t.Errorf("no observation has %s", what)
		}
	}
}

// seen returns the classes, statuses, methods and credentials of observations.
func seen(vectors []conformance.Vector) map[string]bool {
	all := make(map[string]bool)
	for i := range vectors {
		o := &vectors[i].Observation
		for _, class := range o.Failures {
			all["the failure "+class] = true
		}
		all["the method "+o.Method], all["the method "+o.HopMethod+" of the hop"], all["the credential "+o.Credential] = true, true, true
		if o.Response != nil && o.Response.Status >= 200 && o.Response.Status < 600 {
			all["a status like "+string(rune('0'+o.Response.Status/100))+"xx"] = true
		}
	}
	return all
}
