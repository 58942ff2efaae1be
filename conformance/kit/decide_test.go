package kit_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fetchd/conformance"
	"fetchd/conformance/kit"
	"fetchd/test/must"
	"fetchd/test/need"
)

// TestDecide judges programs that decide about two vectors.
func TestDecide(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	vectors := []conformance.Vector{
		{Name: "a", Rule: "H6", Observation: conformance.Observation{Response: &conformance.Response{Status: 404}}, Verdict: conformance.Verdict{Outcome: "failed",
			Failure: &conformance.Failure{Class: "http_client_error", Type: "permanent", Rule: "H6"}, Decision: &conformance.Decision{Rule: "H6", Stop: "not_retried"}}},
		{Name: "b", Rule: "W1", Observation: conformance.Observation{Failures: []string{"connection_reset"}}, Verdict: conformance.Verdict{Outcome: "failed",
			Failure:  &conformance.Failure{Class: "connection_reset", Type: "transient", Rule: "N4", Retryable: true},
			Decision: &conformance.Decision{Rule: "W1", Retry: &conformance.Retry{Attempt: 2, Delay: 200e6, Source: "backoff", Start: "first_url"}}}},
	}
	const (
		a = `{"name":"a","verdict":{"outcome":"failed","failure":{"class":"http_client_error","type":"permanent","rule":"H6","retryable":false,"reason":"any"},"decision":{"rule":"H6","stop":"not_retried"}}}`
		b = `{"name":"b","verdict":{"outcome":"failed","failure":{"class":"connection_reset","type":"transient","rule":"N4","retryable":true},"decision":{"rule":"W1","retry":{"attempt":2,"delay":"0.2s","source":"backoff","start":"first_url"}}}}`
	)
	says := func(lines ...string) string {
		return "cat >/dev/null\ncat <<'END'\n" + strings.Join(lines, "\n") + "\nEND"
	}
	for _, row := range []struct {
		name, script string
		wrong        []string // what differs, of each vector
		err          string   // a part of it
	}{
		{name: "right", script: says(a, b), wrong: []string{"", ""}},
		{name: "a delay with zeros", script: says(a, strings.Replace(b, `"0.2s"`, `"0.200000000s"`, 1)), wrong: []string{"", ""}},
		{name: "reads nothing", script: strings.TrimPrefix(says(a, b), "cat >/dev/null\n"), wrong: []string{"", ""}},
		{name: "another outcome", script: says(strings.Replace(a, "failed", "success", 1), b), wrong: []string{"outcome", ""}},
		{name: "another class", script: says(strings.Replace(a, "client", "server", 1), b), wrong: []string{"failure", ""}},
		{name: "another delay", script: says(a, strings.Replace(b, "0.2s", "0.201s", 1)), wrong: []string{"", "decision"}},
		{name: "a redirect too", script: says(a, strings.Replace(b, `"decision"`, `"redirect":{"url":"http://a/","method":"GET","body_kept":false,"cross_origin":false},"decision"`, 1)), wrong: []string{"", "redirect"}},
		{name: "no failure", script: says(`{"name":"a","verdict":{"outcome":"failed","decision":{"rule":"H6","stop":"not_retried"}}}`, b), wrong: []string{"failure", ""}},
		{name: "an unknown member", script: says(strings.Replace(a, `"outcome"`, `"more":1,"outcome"`, 1), b), wrong: []string{"the line", ""}},
		{name: "no JSON", script: says("yes", b), wrong: []string{"the line", ""}},
		{name: "a delay that is none", script: says(a, strings.Replace(b, "0.2s", "200ms", 1)), wrong: []string{"", "the line"}},
		{name: "no verdict", script: says(`{"name":"a"}`, b), wrong: []string{"the line", ""}},
		{name: "two in a line", script: says(a+a, b), wrong: []string{"the line", ""}},
		{name: "another order", script: says(b, a), err: "in order"},
		{name: "a line too few", script: says(a), err: "line 2 is missing"},
		{name: "a line too many", script: says(a, b, b), err: "line 3 answers nothing"},
		{name: "nothing", script: "cat >/dev/null", err: "line 1 is missing"},
		{name: "an exit status", script: "echo first >&2; echo it broke >&2; exit 3", err: `exit status 3: "it broke"`},
		{name: "too much", script: "head -c 40000 /dev/zero", err: "more than"},
		{name: "no end", script: "exec sleep 1000", err: "still running"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			limit := time.Minute
			if row.err == "still running" {
				limit = 10 * time.Millisecond
			}
			c := &kit.Command{Args: []string{shell, "-c", row.script}, Limit: limit}
			results, err := c.Decide(t.Context(), vectors)
			if (err != nil) != (row.err != "") || !strings.Contains(fmt.Sprint(err), row.err) {
				t.Fatalf("%v, want %q", err, row.err)
			}
			var wrong []string
			for _, r := range results {
				what := make([]string, len(r.Wrong))
				for i, m := range r.Wrong {
					what[i] = m.What
				}
				wrong = append(wrong, strings.Join(what, ", "))
				if (r.Verdict == kit.Held) != (len(r.Wrong) == 0) || !r.Vector {
					t.Errorf("%+v", r)
				}
			}
			if !slices.Equal(wrong, row.wrong) {
				t.Errorf("wrong: %q, want %q", wrong, row.wrong)
			}
		})
	}
}

// TestDecideEverything has a program get every vector as it is written in the files.
func TestDecideEverything(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	// It answers nothing, so each line is wrong, and its name shows that it was asked in order.
	script := `sed 's/^{"name":"\([a-z0-9-]*\)".*/{"name":"\1","verdict":{}}/'`
	results, err := (&kit.Command{Args: []string{shell, "-c", script}}).Decide(t.Context(), vectors)
	if err != nil || len(results) != len(vectors) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Verdict != kit.Failed {
			t.Errorf("%+v", r)
		}
	}
}

// TestDecidePython judges conformance/implementations/python. Its decisions must be right for every vector.
func TestDecidePython(t *testing.T) {
	t.Parallel()
	python := need.Program(t, "python3", "python3")
	const folder = "../implementations/python"
	if _, err := os.ReadDir(folder); err != nil { // and go test notices a change of its files
		t.Fatal(err)
	}
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	results, err := (&kit.Command{Args: []string{python, folder + "/decide"}, Limit: 2 * time.Minute}).Decide(t.Context(), vectors)
	if err != nil || len(results) != len(vectors) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Verdict != kit.Held {
			t.Errorf("%+v", r)
		}
	}
}
