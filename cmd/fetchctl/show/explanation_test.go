package show_test

import (
	"regexp"
	"strings"
	"testing"

	"fetchd/cmd/fetchctl/service"
	"fetchd/cmd/fetchctl/show"
	"fetchd/conformance"
	"fetchd/conformance/mapping"
	"fetchd/internal/rules"
)

// Every vector is explained in words, and every rule that it names has its
// sentence.
func TestExplanation(t *testing.T) {
	t.Parallel()
	vectors, err := conformance.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	svc, err := service.Start(service.Config(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	rule := regexp.MustCompile(`(?m)^rule ([A-Z][0-9]+) *(.*)$`)
	for _, v := range vectors {
		req := mapping.ExplainRequest(&v.Observation)
		resp, err := svc.Explain(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		text := show.Explanation(false, req, resp)
		if strings.Contains(text, "%!") {
			t.Errorf("%s: %s", v.Name, text)
		}
		for _, m := range rule.FindAllStringSubmatch(text, -1) {
			if m[2] == "" || m[2] != rules.Sentence(m[1]) {
				t.Errorf("%s: rule %s has the sentence %q", v.Name, m[1], m[2])
			}
		}
	}
}
