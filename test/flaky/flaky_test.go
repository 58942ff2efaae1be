package main

import (
	"slices"
	"testing"
	"time"

	"fetchd/conformance/origin"
)

// find returns a kind by its name.
func find(t *testing.T, name string) *job {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		t.Fatalf("there is no kind %q", name)
	}
	return &job{kind: &kinds[i]}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	at := func(offsets ...time.Duration) (seen requests) {
		for _, d := range offsets {
			seen = append(seen, origin.Request{Time: start.Add(d)})
		}
		return seen
	}
	body, other, failure := &answer{SHA256: "right"}, &answer{SHA256: "wrong"}, &answer{Error: "failed"}
	for _, row := range []struct {
		name, kind      string
		answer          *answer
		seen            requests
		want            verdict
		early, repeated int
	}{
		{"a right body", "503, 200", body, at(0, 200*time.Millisecond), rightBody, 0, 0},
		{"half of a body", "half of the body, 200", other, at(0), wrongBody, 0, 0},
		{"a failure that a retry would have avoided", "503, 200", failure, at(0), lost, 0, 0},
		{"no result", "503, 200", nil, at(0), unanswered, 0, 0},
		{"a dead URL", "404", failure, at(0), rightFailure, 0, 0},
		{"a dead URL, four times", "404", failure, at(0, 1, 2, 3), rightFailure, 0, 3},
		{"the body of an error", "404", body, at(0), wrongBody, 0, 0},
		{"a 500 is asked for again", "500 always", failure, at(0, 1, 2, 3), rightFailure, 0, 0},
		{"a POST", "POST: 503, 200", failure, at(0), rightFailure, 0, 0},
		{"a second POST that succeeds", "POST: 503, 200", body, at(0, 1), postedTwice, 0, 0},
		{"a second POST that fails", "POST: 503, 200", failure, at(0, 1), postedTwice, 0, 0},
		{"after the Retry-After", "429 with Retry-After: 1, 200", body, at(0, time.Second), rightBody, 0, 0},
		{"before the Retry-After", "429 with Retry-After: 1, 200", body, at(0, 900*time.Millisecond), rightBody, 1, 0},
		{"after the date", "503 with Retry-After: a date, 200", body, at(0, 2400*time.Millisecond), rightBody, 0, 0},
		{"before the date", "503 with Retry-After: a date, 200", body, at(0, 2300*time.Millisecond), rightBody, 1, 0},
		{"twice within the hour", "429 with Retry-After: 3600", failure, at(0, time.Second, 2*time.Second), rightFailure, 2, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			j := find(t, row.kind)
			if got := j.judge(row.answer, "right", row.seen); got != row.want {
				t.Errorf("judge(%+v) = %q, want %q", row.answer, got, row.want)
			}
			if got := j.early(row.seen); got != row.early {
				t.Errorf("%d requests are early, want %d", got, row.early)
			}
			if got := j.repeated(row.seen); got != row.repeated {
				t.Errorf("%d requests are for nothing, want %d", got, row.repeated)
			}
		})
	}
}

func TestMix(t *testing.T) {
	t.Parallel()
	for _, n := range []int{50, whole, 777} {
		mix := newMix(n, 1)
		if len(mix) != n {
			t.Errorf("a mix of %d has %d URLs", n, len(mix))
		}
		for i := range kinds {
			if !slices.ContainsFunc(mix, func(j *job) bool { return j.kind == &kinds[i] }) {
				t.Errorf("a mix of %d has no %s", n, kinds[i].name)
			}
		}
	}
	paths := func(seed uint64) (all []string) {
		for _, j := range newMix(50, seed) {
			all = append(all, j.path)
		}
		return all
	}
	if !slices.Equal(paths(1), paths(1)) || slices.Equal(paths(1), paths(2)) {
		t.Error("the seed alone must decide the mix")
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	if got := lines("# comment\n\nimport x\n  // comment\nx.y()  # this line counts\n"); got != 2 {
		t.Errorf("lines = %d, want 2", got)
	}
}

func TestDirect(t *testing.T) {
	t.Parallel()
	environ := []string{"PATH=/bin", "HTTP_PROXY=http://proxy.example:1", "https_proxy=http://proxy.example:1", "ALL_PROXY=socks5://proxy.example:1", "HOME=/"}
	if got, want := direct(environ), []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) || environ[1] == "HOME=/" {
		t.Errorf("the environment is %q, want %q", got, want)
	}
}
