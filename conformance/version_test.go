package conformance_test

import (
	"regexp"
	"testing"

	"fetchd/conformance"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := conformance.Version(); !regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}$`).MatchString(got) {
		t.Errorf("version %q, want MAJOR.MINOR.PATCH", got)
	}
}
