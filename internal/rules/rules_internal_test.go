package rules

import (
	"strings"
	"testing"
)

// TestExceptedExist checks that the rules of the table of exceptions exist.
func TestExceptedExist(t *testing.T) {
	t.Parallel()
	for id, others := range excepted {
		for _, rule := range append(strings.Fields(others), id) {
			if Sentence(rule) == "" {
				t.Errorf("the exceptions name the rule %s, which does not exist", rule)
			}
		}
	}
}
