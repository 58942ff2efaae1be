package worker

import (
	"strings"
	"testing"
	"unicode"

	"fetchd/frontier"
)

// TestOutcomesArePlain checks that an outcome cannot control a terminal, whatever the origin sends.
func TestOutcomesArePlain(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := (&lines{w: &out}).write(frontier.Record{LastError: "a&\u009b31m\u202eb\u2066c\u007f\U000e0041"}); err != nil {
		t.Fatal(err)
	}
	line, ended := strings.CutSuffix(out.String(), "\n")
	if !ended || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) }) || !strings.Contains(line, `"last_error":"a&\u009b31m\u202eb`) {
		t.Errorf("%q", out.String())
	}
}
