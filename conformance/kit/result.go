package kit

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fetchd/conformance"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
)

// Verdict is the result of a vector or a scenario.
type Verdict string

// The verdicts.
const (
	// Held: everything was as expected.
	Held Verdict = "held"
	// Failed: there was a mismatch.
	Failed Verdict = "failed"
	// NotApplicable: it does not apply to the subject.
	NotApplicable Verdict = "n/a"
	// NotRun: it could not be run here.
	NotRun Verdict = "not run"
)

// Result is the result of one vector or scenario.
type Result struct {
	Name string `json:"name"`
	// Vector is true for a vector and false for a wire scenario.
	Vector  bool     `json:"vector,omitempty"`
	Rules   []string `json:"rules"`
	Verdict Verdict  `json:"verdict"`
	// Wrong has the mismatches. It is empty unless Verdict is Failed.
	Wrong []Mismatch `json:"wrong,omitempty"`
	// Why is the reason if it was not run.
	Why string `json:"why,omitempty"`
	// Requests is how many requests the origin received, and Gaps the seconds between them.
	Requests int       `json:"requests"`
	Gaps     []float64 `json:"gaps,omitempty"`
}

// Report has the results of one subject.
type Report struct {
	// Subject is the server or the client. Command is the command line of a client, and Version
	// its output for --version.
	Subject string   `json:"subject"`
	Command string   `json:"command,omitempty"`
	Version string   `json:"version,omitempty"`
	Results []Result `json:"results"`
}

// Tally counts verdicts.
type Tally struct{ Held, Failed, Other int }

// Judged returns how many results are held or failed.
func (t Tally) Judged() int { return t.Held + t.Failed }

func (t *Tally) add(v Verdict) {
	switch v {
	case Held:
		t.Held++
	case Failed:
		t.Failed++
	default:
		t.Other++
	}
}

// Tally counts the results for which filter returns true.
func (r *Report) Tally(filter func(*Result) bool) Tally {
	var t Tally
	for i := range r.Results {
		if filter(&r.Results[i]) {
			t.add(r.Results[i].Verdict)
		}
	}
	return t
}

// Rules returns the rules of all results, sorted by letter and then by number.
func (r *Report) Rules() []string {
	var rules []string
	for i := range r.Results {
		rules = append(rules, r.Results[i].Rules...)
	}
	slices.SortFunc(rules, compareRules)
	return slices.Compact(rules)
}

func compareRules(a, b string) int {
	if a[0] != b[0] {
		return int(a[0]) - int(b[0])
	}
	m, _ := strconv.Atoi(a[1:]) // a test checks that they are a letter and a number
	n, _ := strconv.Atoi(b[1:])
	return m - n
}

// Suite is a server under test and the origin that serves it.
type Suite struct {
	Service pb.FetchServiceClient
	Origin  Origin
	// Jobs is how many scenarios run at the same time. Zero means one.
	Jobs int
	// Skip returns why a scenario is not run, or "" to run it. Nil runs all.
	Skip func(*Scenario) string
}

// Vectors runs the vectors and returns the results in their order. It returns an error if ctx
// ends.
func (x *Suite) Vectors(ctx context.Context, vectors []conformance.Vector) ([]Result, error) {
	results := make([]Result, len(vectors))
	err := each(ctx, x.Jobs, len(vectors), func(ctx context.Context, i int) error {
		v := &vectors[i]
		wrong := Explain(ctx, x.Service, v)
		results[i] = Result{Name: v.Name, Vector: true, Rules: []string{v.Rule}, Verdict: verdict(wrong), Wrong: wrong}
		return nil
	})
	return results, err
}

// framed is the listener whose scenarios run one at a time. They would share a connection, which
// some of them break.
const framed = "h2fault"

// Scenarios runs the scenarios and returns the results in their order. It returns an error if ctx
// ends.
func (x *Suite) Scenarios(ctx context.Context, scenarios []*Scenario) ([]Result, error) {
	results := make([]Result, len(scenarios))
	var alone sync.Mutex
	err := each(ctx, x.Jobs, len(scenarios), func(ctx context.Context, i int) error {
		s := scenarios[i]
		results[i] = Result{Name: s.Name, Rules: s.Rules}
		if x.Skip != nil {
			if why := x.Skip(s); why != "" {
				results[i].Verdict, results[i].Why = NotRun, why
				return nil
			}
		}
		if s.Listener == framed {
			alone.Lock()
			defer alone.Unlock()
		}
		rec := s.Perform(ctx, x.Service, x.Origin, nil)
		results[i].judged(s.Judge(x.Origin, rec), rec.Requests)
		return nil
	})
	return results, err
}

// judged fills in the result of a scenario.
func (r *Result) judged(wrong []Mismatch, requests []origin.Request) {
	r.Wrong, r.Verdict, r.Requests = wrong, verdict(wrong), len(requests)
	for _, gap := range gapsOf(requests) {
		r.Gaps = append(r.Gaps, gap.Round(time.Millisecond).Seconds())
	}
}

func gapsOf(requests []origin.Request) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(requests); i++ {
		gaps = append(gaps, requests[i].Time.Sub(requests[i-1].Time))
	}
	return gaps
}

func verdict(wrong []Mismatch) Verdict {
	if len(wrong) > 0 {
		return Failed
	}
	return Held
}

// each calls do for 0 to n-1, jobs at a time, until one fails or ctx ends.
func each(ctx context.Context, jobs, n int, do func(context.Context, int) error) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(max(jobs, 1))
	for i := range n {
		group.Go(func() error {
			if err := within.Err(); err != nil {
				return err
			}
			return do(within, i)
		})
	}
	err := group.Wait()
	if ctx.Err() != nil { // the calls that ctx interrupted have no meaning
		return ctx.Err()
	}
	return err
}
