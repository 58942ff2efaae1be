package kit_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/conformance/kit"
	"fetchd/conformance/origin"
	"fetchd/test/must"
)

// fetcher is a client in this process.
type fetcher func(ctx context.Context, url string) ([]byte, error)

func (fetcher) Describe(context.Context) (*kit.Report, error) { return new(kit.Report), nil }

func (fetcher) Trust([]byte, string) error { return nil }

func (f fetcher) Run(ctx context.Context, url, _ string) (body []byte, exit int, err error) {
	if body, err = f(ctx, url); err != nil {
		exit = 1
	}
	return body, exit, nil
}

// TestClientThatIsSlowByChance checks that a client that does not wait fails, although it was slow the first time.
func TestClientThatIsSlowByChance(t *testing.T) {
	t.Parallel()
	all := load(t)
	at := slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == "503 then 200" })
	started := time.Now()
	for _, row := range []struct {
		name string
		gaps []time.Duration // of the runs
		runs int
		want kit.Verdict
	}{
		{"clearly waits", []time.Duration{time.Second}, 1, kit.Held},
		{"slow once", []time.Duration{230 * time.Millisecond, 50 * time.Millisecond}, 2, kit.Failed},
		{"slow at first", []time.Duration{230 * time.Millisecond, 210 * time.Millisecond, 3 * time.Millisecond}, 3, kit.Failed},
		{"waits as long as it must", slices.Repeat([]time.Duration{201 * time.Millisecond}, 8), 8, kit.Held},
	} {
		o, runs := &retimed{Origin: origin.New(origin.Config{}), gaps: row.gaps, started: started}, 0
		client := fetcher(func(context.Context, string) ([]byte, error) {
			runs++
			return o.Body(2000), nil
		})
		got, err := kit.ClientScenarios(t.Context(), client, all[at:at+1], o, 1, func() (string, error) { return "", nil })
		if err != nil || got[0].Verdict != row.want || runs != row.runs || len(o.keys) != runs {
			t.Errorf("%s: %q after %d runs with the keys %v, %v; want %q after %d", row.name, got[0].Verdict, runs, o.keys, err, row.want, row.runs)
		}
	}
}

// TestClientAtItsLimit checks that a client that was still running at its time limit is run once more: the machine may
// have been busy.
func TestClientAtItsLimit(t *testing.T) {
	t.Parallel()
	all := load(t)
	at := slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == "404" })
	for _, row := range []struct {
		name  string
		exits []int
		want  kit.Verdict
	}{
		{"in time", []int{1}, kit.Held},
		{"late once", []int{-1, 1}, kit.Held},
		{"late twice", []int{-1, -1}, kit.Failed},
		{"late, and then wrong", []int{-1, 0}, kit.Failed},
	} {
		c := &exiting{exits: row.exits}
		got, err := kit.ClientScenarios(t.Context(), c, all[at:at+1], &retimed{Origin: origin.New(origin.Config{})}, 1, func() (string, error) { return "", nil })
		if err != nil || got[0].Verdict != row.want || c.runs != len(row.exits) {
			t.Errorf("%s: %q after %d runs, %v; want %q after %d", row.name, got[0].Verdict, c.runs, err, row.want, len(row.exits))
		}
	}
}

// exiting is a client that ends with each exit status in turn.
type exiting struct {
	kit.Client
	exits []int
	runs  int
}

func (e *exiting) Run(context.Context, string, string) ([]byte, int, error) {
	e.runs++
	return nil, e.exits[e.runs-1], nil
}

// retimed is an origin that saw two requests for each key, with these times between them, or one if there are none.
type retimed struct {
	*origin.Origin
	gaps    []time.Duration
	started time.Time
	keys    []string
}

func (o *retimed) Requests(key string) []origin.Request {
	if !slices.Contains(o.keys, key) {
		o.keys = append(o.keys, key)
	}
	done := make(chan struct{})
	close(done)
	if len(o.gaps) == 0 {
		return []origin.Request{{Method: http.MethodGet, Done: done}}
	}
	return []origin.Request{{Method: http.MethodGet, Time: o.started, Done: done},
		{Method: http.MethodGet, Time: o.started.Add(o.gaps[slices.Index(o.keys, key)]), Done: done}}
}

// TestClientsThatContinue checks what is right for a client when a body breaks off: to continue it, if it is still the
// same, to start again, or to give up. Two halves of different files are wrong.
func TestClientsThatContinue(t *testing.T) {
	t.Parallel()
	// get asks with the header fields, and returns what arrived.
	get := func(ctx context.Context, url string, fields ...string) (body []byte, resp *http.Response, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, nil, err
		}
		for i := 0; i < len(fields); i += 2 {
			req.Header.Set(fields[i], fields[i+1])
		}
		transport := &http.Transport{DisableKeepAlives: true}
		if resp, err = transport.RoundTrip(req); err != nil {
			return nil, nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err = io.ReadAll(resp.Body)
		return body, resp, err
	}
	once := func(ctx context.Context, url string) ([]byte, error) {
		body, _, err := get(ctx, url)
		return body, err
	}
	// continues asks for the rest: conditionally, and checks what it gets, or not.
	continues := func(conditional, checks bool) fetcher {
		return func(ctx context.Context, url string) ([]byte, error) {
			first, before, err := get(ctx, url)
			if err == nil {
				return first, nil
			}
			fields := []string{"Range", "bytes=700000-"}
			if conditional {
				fields = append(fields, "If-Range", before.Header.Get("Etag"))
			}
			rest, after, err := get(ctx, url, fields...)
			switch {
			case err != nil:
				return nil, err
			case checks && after.StatusCode != http.StatusPartialContent:
				return rest, nil // the whole of the other version
			default:
				return append(first, rest...), nil
			}
		}
	}
	all := load(t)
	for _, row := range []struct {
		name               string
		client             fetcher
		continued, changed []string // what is wrong
	}{
		{"continues", continues(true, true), nil, nil},
		{"starts again", func(ctx context.Context, url string) ([]byte, error) {
			if body, err := once(ctx, url); err == nil {
				return body, nil
			}
			return once(ctx, url)
		}, nil, nil},
		{"gives up", once, []string{"exit status", "requests"}, nil},
		{"does not say which version it has", continues(false, true), []string{"If-Range of request 2"}, []string{"body"}},
		{"appends whatever comes", continues(true, false), nil, []string{"body"}},
		{"appends whatever comes, without If-Range", continues(false, false), []string{"If-Range of request 2"}, []string{"body"}},
		{"takes a part for the whole", func(ctx context.Context, url string) ([]byte, error) {
			body, _ := once(ctx, url)
			return body, nil
		}, []string{"requests", "body"}, []string{"body"}},
	} {
		for name, want := range map[string][]string{"body continued": row.continued, "body changed": row.changed} {
			t.Run(row.name+", "+name, func(t *testing.T) {
				o, err := origin.Start(origin.Config{})
				must.Succeed(t, err)
				defer func() { _ = o.Close() }() // always nil
				s := all[slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == name })]
				rec, err := s.PerformClient(t.Context(), row.client, o, "")
				must.Succeed(t, err)
				var got []string
				for _, m := range s.JudgeClient(o, rec) {
					got = append(got, m.What)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("mismatches (-want +got):\n%s", diff)
				}
			})
		}
	}
}
