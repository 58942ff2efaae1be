package origin

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJournalDropsTheOldest(t *testing.T) {
	t.Parallel()
	j := newJournal(3)
	rt := &route{steps: []step{{text: "1"}, {text: "2"}, {text: "3"}}}
	for _, key := range []string{"a", "b", "a", "b", "b"} {
		rt.key = key
		j.open(Request{}, rt, 0)
	}
	var got []string
	for _, r := range j.all() {
		got = append(got, fmt.Sprintf("%s %d %s", r.Key, r.Number, r.Step))
	}
	// Counters continue after entries are dropped.
	if diff := cmp.Diff([]string{"a 2 2", "b 2 2", "b 3 3"}, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if a, b := len(j.requests("a")), len(j.requests("b")); a != 1 || b != 2 {
		t.Errorf("%d of a and %d of b, want 1 and 2", a, b)
	}
}
