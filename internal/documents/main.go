// Command documents writes what the code knows about outcomes and rules: docs/outcomes.md, or with the argument
// "rules.js" the sentences for the console. With "surface" it lists the public names that only the code has, for docs/surface.txt.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"fetchd/classify"
	"fetchd/internal/rules"
)

// statuses has a status for each class that is decided by the status alone.
var statuses = map[classify.Class]int{
	classify.HTTPServerError: 503, classify.RateLimited: 429, classify.AuthRequired: 401, classify.Forbidden: 403,
	classify.RequestTimeout: 408, classify.HTTPClientError: 404, classify.UnexpectedNotModified: 304,
}

//go:embed outcomes.md.tmpl
var outcomesText string

var outcomes = template.Must(template.New("outcomes").Parse(outcomesText))

// class is a row of the table of error classes.
type class struct{ Name, Rule, Text, Type, Retried, Retryable string }

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "documents:", err)
		os.Exit(1)
	}
}

// write writes a text to standard output, unless there is an error.
func write(text string, err error) error {
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	return err
}

func run() error {
	switch strings.Join(os.Args[1:], " ") {
	case "rules.js":
		return writeRulesScript()
	case "departures.tsv":
		return writeDepartures()
	case "surface":
		return write(surface(os.Getenv("TEST_PROGRAMS")))
	}
	comments, err := comments("server/descriptor.binpb")
	if err != nil {
		return err
	}
	page := struct {
		Classes []class
		Rules   []rules.Rule // but for those of the classes
	}{Rules: slices.Clone(rules.All)}
	for _, c := range classify.Classes() {
		name := c.String()
		comment, found := comments["ERROR_CLASS_"+strings.ToUpper(name)]
		if !found {
			return fmt.Errorf("fetch.proto has no error class %s", name)
		}
		standard, download := decide(c, classify.Standard), decide(c, classify.Download)
		rule := string(standard.ClassRule)
		page.Rules = slices.DeleteFunc(page.Rules, func(r rules.Rule) bool { return r.ID == rule })
		page.Classes = append(page.Classes, class{name, rule, strings.TrimSuffix(strings.TrimPrefix(comment, rule+". "), "."),
			both(standard.FailureType.String(), download.FailureType.String()),
			both(yes(standard.Verdict == classify.Retry), yes(download.Verdict == classify.Retry)),
			both(yes(standard.Retryable), yes(download.Retryable))})
	}
	return outcomes.Execute(os.Stdout, page)
}

// departure matches a row of the table of docs/spec.md §14.
var departure = regexp.MustCompile(`(?m)^\| (X\d+) \| (.+) \| (.+) \| (.+) \| (.+) \|$`)

// writeDepartures writes internal/rules/departures.tsv.
func writeDepartures() error {
	spec, err := os.ReadFile("docs/spec.md")
	if err != nil {
		return err
	}
	for _, row := range departure.FindAllStringSubmatch(string(spec), -1) {
		if _, err := fmt.Println(strings.ReplaceAll(strings.Join(row[1:], "\t"), "`", "")); err != nil {
			return err
		}
	}
	return nil
}

// writeRulesScript writes server/console/page/rules.js.
func writeRulesScript() error {
	var out strings.Builder
	out.WriteString("// The rules of the specification. Written by .ci/generated from internal/rules; do not edit.\n\nconst rules = {\n")
	for _, r := range rules.All {
		fmt.Fprintf(&out, "  %s: %s,\n", r.ID, "'"+strings.ReplaceAll(r.Sentence, "'", `\'`)+"'")
	}
	out.WriteString(`};

// meaning returns what a rule says, or '' for an unknown rule.
export function meaning(rule) {
  return Object.hasOwn(rules, rule) ? rules[rule] : '';
}
`)
	_, err := os.Stdout.WriteString(out.String())
	return err
}

// decide returns the decision after the first attempt of a GET that ended with class.
func decide(class classify.Class, profile classify.Profile) classify.Decision {
	policy := profile.Policy()
	o := classify.Observation{Attempt: 1, TimeLeft: classify.Unbounded, Status: statuses[class]}
	if o.Status == 0 {
		o.Faults = classify.FaultsOf(class)
	}
	return classify.Decide(&policy, &o)
}

// both joins the values of the two profiles, or returns one of them if they are equal.
func both(standard, download string) string {
	if standard == download {
		return standard
	}
	return standard + "; in download " + download
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// comments returns the comments of all enum values of fetchd.v1, by name, from a descriptor set.
func comments(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found := make(map[string]string)
	for _, file := range set.GetFile() {
		for _, at := range file.GetSourceCodeInfo().GetLocation() {
			// 5 is enum_type of a file and 2 value of an enum: descriptor.proto.
			if p := at.GetPath(); len(p) == 4 && p[0] == 5 && p[2] == 2 && file.GetPackage() == "fetchd.v1" {
				value := file.GetEnumType()[p[1]].GetValue()[p[3]]
				found[value.GetName()] = strings.Join(strings.Fields(at.GetLeadingComments()), " ")
			}
		}
	}
	return found, nil
}
