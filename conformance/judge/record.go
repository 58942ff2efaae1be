package judge

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"fetchd/conformance"
	"fetchd/conformance/kit"
)

// RecordFormat is the format of a [Record]. A change that readers must know has another number.
const RecordFormat = "fetch-conformance-record/2"

// Record is a report to keep and to compare. The same results give the same bytes: it has no times, no measured
// waits and no addresses.
type Record struct {
	Format string `json:"format"`
	// Judge is the version of the program that judged, and Data the SHA-256 of the vectors and scenarios.
	Judge string `json:"judge"`
	Data  string `json:"data"`
	// Way is decide, client, service or guard, and Kind the kind of a guard. Subject, Command and Version are those of the
	// implementation. Reproduce is the command line that gives the same record.
	Way       string `json:"way"`
	Kind      string `json:"kind,omitempty"`
	Subject   string `json:"subject"`
	Command   string `json:"command,omitempty"`
	Version   string `json:"version,omitempty"`
	Reproduce string `json:"reproduce,omitempty"`
	// Levels has every level.
	Levels  []RecordLevel `json:"levels"`
	Results RecordResults `json:"results"`
}

// RecordLevel counts the results of a level.
type RecordLevel struct {
	Level  string `json:"level"`
	Held   int    `json:"held"`
	Failed int    `json:"failed"`
	// Other were not judged.
	Other int `json:"other"`
	// Whole reports whether something was judged, and nothing failed here or at a level before.
	Whole bool `json:"whole"`
}

// RecordResult is the result of a vector, a scenario or a row for guards.
type RecordResult struct {
	Kind, Name string
	// Level and Rules follow from the name. They are empty after reading a name that this program does not know.
	Level   string
	Rules   []string
	Verdict kit.Verdict
	// Failures has a sentence for each difference: the rules, what was sent, what was expected and what came.
	Failures []string
}

// RecordResults are the results of a record. As JSON they are names by verdict and kind, and the sentences about those
// that failed. What does not apply to the subject is only counted, in [RecordLevel].
type RecordResults []RecordResult

type savedResults struct {
	Names    map[kit.Verdict]map[string][]string `json:"names"`
	Failures map[string]map[string][]string      `json:"failures,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (all RecordResults) MarshalJSON() ([]byte, error) {
	saved := savedResults{make(map[kit.Verdict]map[string][]string), make(map[string]map[string][]string)}
	for i := range all {
		r := &all[i]
		if r.Verdict == kit.NotApplicable {
			continue
		}
		if saved.Names[r.Verdict] == nil {
			saved.Names[r.Verdict] = make(map[string][]string)
		}
		saved.Names[r.Verdict][r.Kind] = append(saved.Names[r.Verdict][r.Kind], r.Name)
		if r.Failures == nil {
			continue
		}
		if saved.Failures[r.Kind] == nil {
			saved.Failures[r.Kind] = make(map[string][]string)
		}
		saved.Failures[r.Kind][r.Name] = r.Failures
	}
	return json.Marshal(saved)
}

// UnmarshalJSON implements [json.Unmarshaler]. The results have the order of the data of this program.
func (all *RecordResults) UnmarshalJSON(data []byte) error {
	var saved savedResults
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	known, err := everything()
	if err != nil {
		return err
	}
	order := make(map[[2]string]int, len(known))
	for i := range known {
		order[[2]string{known[i].Kind, known[i].Name}] = i
	}
	var strange RecordResults
	for verdict, kinds := range saved.Names {
		for kind, names := range kinds {
			for _, name := range names {
				r := &RecordResult{Kind: kind, Name: name}
				at, ok := order[[2]string{kind, name}]
				if ok {
					r = &known[at]
				}
				if r.Verdict != "" {
					return fmt.Errorf("%s %q has two results", kind, name)
				}
				r.Verdict, r.Failures = verdict, saved.Failures[kind][name]
				if !ok {
					strange = append(strange, *r)
				}
			}
		}
	}
	slices.SortFunc(strange, func(a, b RecordResult) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	known = slices.DeleteFunc(known, func(r RecordResult) bool { return r.Verdict == "" })
	*all = append(known, strange...)
	return nil
}

// everything returns each vector, scenario and row for guards of this program, without a verdict.
func everything() (RecordResults, error) {
	scenarios, vectors, err := Select(nil)
	if err != nil {
		return nil, err
	}
	rows, err := conformance.GuardRows()
	if err != nil {
		return nil, err
	}
	var all RecordResults
	for i := range vectors {
		all = append(all, RecordResult{Kind: "vector", Name: vectors[i].Name, Level: conformance.Level(vectors[i].Rule), Rules: []string{vectors[i].Rule}})
	}
	for _, s := range scenarios {
		all = append(all, RecordResult{Kind: "scenario", Name: s.Name, Level: conformance.Level(s.Rules...), Rules: s.Rules})
	}
	for i := range rows {
		all = append(all, RecordResult{Kind: "guard row", Name: rows[i].Name, Level: rows[i].Category, Rules: []string{}})
	}
	return all, nil
}

// NewRecord makes a record of a report. The caller fills in Judge and Reproduce.
func NewRecord(way string, r *kit.Report) (*Record, error) {
	scenarios, vectors, err := Select(nil)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal([]any{vectors, scenarios})
	if err != nil {
		return nil, err
	}
	sent := make(map[string]string) // by name; names of vectors and scenarios differ, because only those of vectors are in kebab-case
	for i := range vectors {
		observation, err := json.Marshal(&vectors[i].Observation)
		if err != nil {
			return nil, err
		}
		sent["vector "+vectors[i].Name] = "for the observation " + string(observation)
	}
	for _, s := range scenarios {
		sent["scenario "+s.Name] = "with the origin at " + s.Listener + " doing " + s.Path
	}
	out := &Record{Format: RecordFormat, Data: fmt.Sprintf("%x", sha256.Sum256(data)), Way: way, Subject: r.Subject, Command: r.Command, Version: r.Version}
	for i := range r.Results {
		x := &r.Results[i]
		result := RecordResult{Kind: "scenario", Name: x.Name, Level: conformance.Level(x.Rules...), Rules: x.Rules, Verdict: x.Verdict}
		if x.Vector {
			result.Kind = "vector"
		}
		for _, m := range x.Wrong {
			result.Failures = append(result.Failures, fmt.Sprintf("%s: %s, %s must be %s and is %s.", strings.Join(x.Rules, ", "), sent[result.Kind+" "+x.Name], m.What, unmeasured(m.Want), came(m)))
		}
		out.Results = append(out.Results, result)
	}
	out.Levels = levels(out.Results)
	return out, nil
}

// came returns what came, without what differs from run to run.
func came(m kit.Mismatch) string {
	if strings.HasPrefix(m.What, "gap ") || strings.HasPrefix(m.What, "wait before ") {
		return "shorter"
	}
	return unmeasured(m.Got)
}

var loopback = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// unmeasured replaces the addresses of the origin, whose ports are others in each run.
func unmeasured(text string) string { return loopback.ReplaceAllString(text, "ORIGIN") }

func levels(results RecordResults) []RecordLevel {
	all := make([]RecordLevel, len(conformance.Levels))
	whole := true
	for i, level := range conformance.Levels {
		l := &all[i]
		l.Level = level
		for j := range results {
			switch r := &results[j]; {
			case r.Level != level:
			case r.Verdict == kit.Held:
				l.Held++
			case r.Verdict == kit.Failed:
				l.Failed++
			default:
				l.Other++
			}
		}
		whole = whole && l.Failed == 0
		l.Whole = whole && l.Held > 0
	}
	return all
}

// Change is how the result of a vector or a scenario differs between two records.
type Change struct {
	Kind, Name string
	// Before and After are empty if a record does not have it.
	Before, After kit.Verdict
}

// Regression reports whether what held does not hold any more.
func (c *Change) Regression() bool { return c.Before == kit.Held && c.After != kit.Held }

// maxRecord limits a record that is read, in bytes. Those of all vectors and scenarios have about 1 MiB.
const maxRecord = 64 << 20

// ReadRecord reads a record. An error says what is wrong with it.
func ReadRecord(from io.Reader) (*Record, error) {
	r := new(Record)
	decoder := json.NewDecoder(io.LimitReader(from, maxRecord))
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("no record of fetch-conformance: %w", err)
	}
	if r.Format != RecordFormat {
		return nil, fmt.Errorf("the format is %.80q, want %q: use the same version of fetch-conformance for both records", r.Format, RecordFormat)
	}
	return r, nil
}

// Changes returns what differs between two records, in the order of the first.
func Changes(before, after *Record) []Change {
	var changes []Change
	type name struct{ kind, name string }
	verdicts := func(r *Record) map[name]kit.Verdict {
		all := make(map[name]kit.Verdict, len(r.Results))
		for i := range r.Results {
			all[name{r.Results[i].Kind, r.Results[i].Name}] = r.Results[i].Verdict
		}
		return all
	}
	were, are := verdicts(before), verdicts(after)
	for i := range before.Results {
		x := &before.Results[i]
		if now := are[name{x.Kind, x.Name}]; now != x.Verdict {
			changes = append(changes, Change{x.Kind, x.Name, x.Verdict, now})
		}
	}
	for i := range after.Results {
		x := &after.Results[i]
		if were[name{x.Kind, x.Name}] == "" {
			changes = append(changes, Change{x.Kind, x.Name, "", x.Verdict})
		}
	}
	return changes
}
