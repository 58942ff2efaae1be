// Package guardrun runs an egress guard in a network in which every address answers, and judges it by the addresses that
// it connects to. A guard is an HTTP client, a proxy, or an MCP server with a tool that fetches.
package guardrun

import (
	"cmp"
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

// Kind is what a guard is, and so how it is asked for a URL.
type Kind string

// The kinds of guards.
const (
	// Client is a program that is called with a URL, and ends when it has written the body.
	Client Kind = "HTTP client"
	// StringCheck is a client of which the guard is only a check of the URL, with a plain fetch behind it.
	StringCheck Kind = "string check with a plain fetch behind"
	// Proxy is a program that listens on an address. It gets each URL in a request in absolute form, and then in
	// CONNECT, from a client that follows redirects.
	Proxy Kind = "HTTP proxy"
	// MCP is a server of the Model Context Protocol on standard input and output, of which a tool fetches URLs.
	MCP Kind = "MCP server"
)

// Guard is a program to judge.
type Guard struct {
	kit.Command
	// Kind is the kind. Empty means [Client].
	Kind Kind
	// Address is where a proxy listens: an IP address and a port.
	Address string
	// Tool is the tool of an MCP server. Empty means the only one that takes a text named url.
	Tool string
	// Release is the version of the guard in the record.
	Release string
}

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
func Record(version string, g *Guard, results []Result) (*judge.Record, error) {
	rows, err := conformance.GuardRows()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	out := &judge.Record{Format: judge.RecordFormat, Judge: version, Data: fmt.Sprintf("%x", sha256.Sum256(data)), Way: "guard", Kind: string(cmp.Or(g.Kind, Client)), Subject: g.Name, Command: strings.Join(g.Args, " "), Version: g.Release}
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
