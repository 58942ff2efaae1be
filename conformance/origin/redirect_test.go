package origin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChainTakesNoTurn checks that the hops of a chain are logged but do not advance the script.
func TestChainTakesNoTurn(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	c.CheckRedirect = nil
	for _, want := range []int{503, 200} {
		if g := mustGet(t, c, o.URL("http", "/r/k/302/2/503/200")); g.StatusCode != want {
			t.Errorf("status %d, want %d", g.StatusCode, want)
		}
	}
	var turns []int
	for _, r := range o.Requests("k") {
		turns = append(turns, r.Turn)
	}
	if diff := cmp.Diff([]int{0, 0, 1, 0, 0, 2}, turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}
