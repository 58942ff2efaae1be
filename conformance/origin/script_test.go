package origin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCycleBeginsAgain checks that a script of /cycle repeats and the same script of /s does not.
func TestCycleBeginsAgain(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	for _, tc := range []struct {
		name, path string
		want       []int
	}{
		{"two steps", "/cycle/two/503/200", []int{503, 200, 503, 200, 503}},
		{"one step", "/cycle/one/404", []int{404, 404, 404}},
		{"a script of /s", "/s/three/503/200", []int{503, 200, 200, 200, 200}},
		{"the same key after /s", "/cycle/three/503/200", []int{503, 200, 503, 200}},
		{"the same key and another script", "/cycle/two/500/404", []int{500, 404, 500}},
		{"/s after the same key", "/s/two/500/404", []int{500, 404, 404}},
	} {
		var got []int
		for range tc.want {
			got = append(got, mustGet(t, c, o.URL("http", tc.path)).StatusCode)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: statuses of %s (-want +got):\n%s", tc.name, tc.path, diff)
		}
	}
	if got := o.Requests("two"); len(got) != 11 || got[4].Number != 5 || got[4].Turn != 5 || got[4].Step != "503" || got[5].Number != 6 || got[5].Turn != 1 {
		t.Errorf("the log of two is %+v, want eleven requests: the fifth of turn 5 and step 503, the sixth of turn 1", got)
	}
}
