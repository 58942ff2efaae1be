// Package guardrun runs a client with an egress guard in a network in which every address answers, and judges it by the
// addresses that it connects to.
package guardrun

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fetchd/conformance"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
)

// Result is the result of one row.
type Result struct {
	Row *conformance.GuardRow
	// Forbidden are the addresses that got a connection and must not, sorted and without duplicates.
	Forbidden []string
	// Unseen is how many connections were opened that no listener accepted, such as those to other ports.
	Unseen int
	// Arrived reports whether the page arrived.
	Arrived bool
}

// Failures has a sentence for each difference from what the row says.
func (r *Result) Failures() []string {
	var all []string
	say := func(format string, args ...any) {
		asked := strings.Join(append(settings(r.Row), r.Row.URL), " ")
		all = append(all, fmt.Sprintf("For %s %s. %s", asked, fmt.Sprintf(format, args...), r.Row.Why))
	}
	if len(r.Forbidden) > 0 {
		say("no connection to %s was allowed, and one was opened", strings.Join(r.Forbidden, " or "))
	}
	if r.Unseen > 0 {
		say("no other connection was allowed, and the kernel counted more than arrived")
	}
	if r.Row.MayConnect && !r.Arrived {
		say("the page of %s had to arrive, and did not", r.Row.Target)
	}
	return all
}

// settings returns the environment of a row, sorted.
func settings(r *conformance.GuardRow) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		all = append(all, name+"="+r.Env[name])
	}
	return all
}

// Record makes a record of the results. version is that of the judge.
func Record(version string, cmd *kit.Command, results []Result) (*judge.Record, error) {
	rows, err := conformance.GuardRows()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	out := &judge.Record{Format: judge.RecordFormat, Judge: version, Data: fmt.Sprintf("%x", sha256.Sum256(data)), Way: "guard", Subject: cmd.Name, Command: strings.Join(cmd.Args, " ")}
	for i := range results {
		r := &results[i]
		result := judge.RecordResult{Kind: "guard row", Name: r.Row.Name, Level: r.Row.Category, Rules: []string{}, Verdict: kit.Held, Failures: r.Failures()}
		if len(result.Failures) > 0 {
			result.Verdict = kit.Failed
		}
		at := slices.IndexFunc(out.Levels, func(l judge.RecordLevel) bool { return l.Level == r.Row.Category })
		if at < 0 {
			at = len(out.Levels)
			out.Levels = append(out.Levels, judge.RecordLevel{Level: r.Row.Category})
		}
		level := &out.Levels[at]
		if result.Verdict == kit.Held {
			level.Held++
		} else {
			level.Failed++
		}
		level.Whole = level.Failed == 0
		out.Results = append(out.Results, result)
	}
	return out, nil
}
