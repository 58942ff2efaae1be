package conformance_test

import (
	"testing"

	"fetchd/conformance"
)

// TestLevels checks that vectors and scenarios are at the level of their last rule, and that scenarios that can judge
// a client are at each level.
func TestLevels(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rules []string
		want  string
	}{
		{[]string{"H6"}, "core"}, {[]string{"I2"}, "core"}, {[]string{"A2"}, "core"}, {[]string{"H1", "W1"}, "waiting"}, {[]string{"W2", "H6"}, "waiting"},
		{[]string{"D3"}, "redirects"}, {[]string{"R1", "W1"}, "redirects"}, {[]string{"C1"}, "bodies"}, {[]string{"B3", "N8"}, "bodies"}, {[]string{"B2", "B1"}, "resumption"},
	} {
		if got := conformance.Level(row.rules...); got != row.want {
			t.Errorf("%q: %s, want %s", row.rules, got, row.want)
		}
	}
	all, err := conformance.Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	clients := make(map[string]int)
	for _, s := range all {
		if s.Client != nil {
			clients[conformance.Level(s.Rules...)]++
		}
	}
	for _, level := range conformance.Levels {
		if clients[level] == 0 {
			t.Errorf("no scenario can judge a client at level %s", level)
		}
	}
}
