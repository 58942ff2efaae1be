package origin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedirectHelpers(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct {
		name, path string
		statuses   []int
		locations  []string
	}{
		{"chain", "/r/k/301/2/503/200", []int{301, 301, 503},
			[]string{"/r/k/301/1/503/200", "/s/k/503/200", ""}},
		{"chain with parameters", "/r/k2/307:delay=1ms/1/200:body=a%2Cb", []int{307, 200},
			[]string{"/s/k2/200:body=a%2Cb", ""}},
		{"loop", "/loop/l/308", []int{308, 308}, []string{"/loop/l/308", "/loop/l/308"}},
		{"loop2", "/loop2/m/302", []int{302, 302, 302}, []string{"/loop2/m/302/b", "/loop2/m/302", "/loop2/m/302/b"}},
		{"cross", "/cross/c/303/http-other/200", []int{303, 200}, []string{o.URL("http-other", "/s/c/200"), ""}},
		{"cross to a name", "/cross/d/302/http@localhost/200", []int{302},
			[]string{strings.Replace(o.URL("http", "/s/d/200"), "127.0.0.1", "localhost", 1)}},
		{"cross to refused", "/cross/e/302/refused/200", []int{302}, []string{o.URL("refused", "/s/e/200")}},
		{"step", "/s/f/302:to=%2Fs%2Fg%2F204%3Fa%3Db", []int{302, 204}, []string{"/s/g/204?a=b", ""}},
		{"no Location", "/s/h/302", []int{302}, []string{""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, o)
			next := o.URL("http", tc.path)
			for i, status := range tc.statuses {
				g := mustGet(t, c, next)
				if location := g.Header.Get("Location"); g.StatusCode != status || location != tc.locations[i] {
					t.Fatalf("%s: %d to %q, want %d to %q", next, g.StatusCode, location, status, tc.locations[i])
				}
				if i == len(tc.statuses)-1 {
					break
				}
				to, err := g.Location()
				if err != nil {
					t.Fatalf("%s: Location: %v", next, err)
				}
				next = to.String()
			}
		})
	}
}

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
