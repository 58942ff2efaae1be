package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/need"
)

const draftFile = "../../conformance/draft/draft-fetchd-http-retry-00.md"

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDraftIsXML turns the Internet-Draft into XML, without a network and without a warning. The XML must have each rule
// of sections 2 to 7 once, except those about this service, and nothing that refers to a place that is not there.
func TestDraftIsXML(t *testing.T) {
	t.Parallel()
	source, err := os.Open(draftFile)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var out, warnings bytes.Buffer
	convert := exec.Command(need.Program(t, "kramdown-rfc2629", "ruby-kramdown-rfc2629"))
	convert.Dir = t.TempDir() // for references that it would fetch
	convert.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9")
	convert.Stdin, convert.Stdout, convert.Stderr = source, &out, &warnings
	if err := convert.Run(); err != nil || warnings.Len() > 0 {
		t.Fatalf("kramdown-rfc2629: %v\n%s", err, &warnings)
	}
	anchors, targets, keyWords := readXML(t, &out)
	var got []string
	for anchor, n := range anchors {
		if n != 1 {
			t.Errorf("the anchor %s is there %d times", anchor, n)
		}
		if rule, found := strings.CutPrefix(anchor, "rule-"); found {
			got = append(got, rule)
		} else if strings.ToUpper(anchor) == anchor && !targets[anchor] {
			t.Errorf("the reference %s is not cited", anchor)
		}
	}
	for target := range targets {
		if anchors[target] == 0 {
			t.Errorf("nothing has the anchor %s, which is cited", target)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(anyClient(t), got); diff != "" || len(got) < 50 {
		t.Errorf("%d rules: (-want +got)\n%s", len(got), diff)
	}
	if keyWords < 2*len(got) {
		t.Errorf("%d words of BCP 14 for %d rules", keyWords, len(got))
	}
}

// readXML returns how often each anchor is there, the targets of references, and the number of words of BCP 14.
func readXML(t *testing.T, text io.Reader) (anchors map[string]int, targets map[string]bool, keyWords int) {
	t.Helper()
	anchors, targets = make(map[string]int), make(map[string]bool)
	for d := xml.NewDecoder(text); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return anchors, targets, keyWords
		}
		if err != nil {
			t.Fatal(err)
		}
		element, _ := token.(xml.StartElement)
		if element.Name.Local == "bcp14" {
			keyWords++
		}
		for _, a := range element.Attr {
			switch {
			case a.Name.Local == "anchor":
				anchors[a.Value]++
			case a.Name.Local == "target" && element.Name.Local == "xref":
				targets[a.Value] = true
			}
		}
	}
}

// anyClient returns the rules of sections 2 to 7 that are not about this service only.
func anyClient(t *testing.T) (rules []string) {
	t.Helper()
	_, text, _ := strings.Cut(readFile(t, "../spec.md"), "\n## 2. ")
	text, _, _ = strings.Cut(text, "\n## 8. ")
	for _, m := range regexp.MustCompile(`(?m)^(?:\| ([A-Z]\d+) \||- ([A-Z]\d+)\. \*(?:Decision|Wire)\.)`).FindAllStringSubmatch(text, -1) {
		rules = append(rules, m[1]+m[2])
	}
	slices.Sort(rules)
	return rules
}

// TestDraftText checks what the draft says, in the file that is committed.
func TestDraftText(t *testing.T) {
	t.Parallel()
	text := readFile(t, draftFile)
	for _, rule := range anyClient(t) {
		if n := strings.Count(text, "\n{: #rule-"+rule+"}"+rule+" ("); n != 1 {
			t.Errorf("rule %s is there %d times", rule, n)
		}
	}
	_, rules, _ := strings.Cut(text, "\n--- middle\n")
	if m := regexp.MustCompile(`\bS[0-4]\b|\bX\d|\bdecision \d|§|[^\x00-\x7f]`).FindString(rules); m != "" {
		t.Errorf("the draft has %q, which belongs to docs/spec.md", m)
	}
	_, reasons, _ := strings.Cut(rules, "{: #rule-I7}")
	reasons, _, _ = strings.Cut(reasons, " A decision MUST ")
	for _, reason := range regexp.MustCompile(`\b[A-Z_]{6,}\b`).FindAllString(reasons, -1) {
		if !strings.Contains(rules, "\n"+reason+":\n: ") {
			t.Errorf("the draft does not say what the stop reason %s means", reason)
		}
	}
}

// small are sections 2 to 7 for a draft of a few rules.
var small = map[string]string{
	"2": "One *client* must.\n",
	"3": "| # | what happened | error class | failure type | retried | source |\n|---|---|---|---|---|---|\n| H1 | 500–599 | HTTP_SERVER_ERROR | transient | yes | S0 Retry 2 |\n",
	"4": "- W1. *Decision.* It must wait.\n- W5. *Service.* A wait of gRPC.\n  - Its point.\n",
	"5": "- I1. *Wire.* It may send.\n", "6": "Text.\n", "7": "Text.\n",
}

// draftOf returns the draft of small, with other text for some sections.
func draftOf(t *testing.T, sections map[string]string, edits []edit) (string, []string) {
	t.Helper()
	text := maps.Clone(small)
	maps.Copy(text, sections)
	var spec, frame strings.Builder
	spec.WriteString("# Words\n\n## 1. Ignored, X3 and §9\n")
	for number, anchor := range anchors {
		frame.WriteString("# Section {#" + anchor + "}\n\n{rules of section " + number + "}\n\n")
	}
	for _, number := range slices.Sorted(maps.Keys(text)) {
		spec.WriteString("\n## " + number + ". Title\n\n" + text[number])
	}
	spec.WriteString("\n## 8. Ignored, too\n\n- A2. *Decision.* Other.\n")
	return draft(spec.String(), frame.String()+"--- back\n\n  RFC9110:\n  FETCH:\n", edits)
}

// TestDraftWords checks what becomes of the words of a rule.
func TestDraftWords(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, spec, want string }{
		{"a key word", "It must not, should or may wait.", "It MUST NOT, SHOULD or MAY wait."},
		{"a part of a word", "Mustard, maybe, a shoulder: it must.", "Mustard, maybe, a shoulder: it MUST."},
		{"a key word as code", "It must `must`.", "It MUST `must`."},
		{"sources", "It must (S0 Retry 2, Retry 3; S1 Why 1). It (X12) waits (decision 4).", "It MUST. It waits."},
		{"a source next to a note", "It must (Content-Range; decision 5).", "It MUST (Content-Range)."},
		{"a note", "It must (n = 1, 2).", "It MUST (n = 1, 2)."},
		{"a rule", "It must (H1), as W1 and `H1` say.", "It MUST ([H1]), as [W1] and `H1` say."},
		{"a rule that is not in the draft", "It must (W5). It must (W5, A3).", "It MUST. It MUST."},
		{"the rule that the frame explains", "It must after A2 (A2).", "It MUST after A2 (A2)."},
		{"an RFC", "It must (RFC 9110 §10.2.3, Fetch standard).", "It MUST ({{Section 10.2.3 of RFC9110}}, {{FETCH}})."},
		{"a section", "It must, see §4.", "It MUST, see {{waiting}}."},
		{"characters", "It must 1–2 · 3 − 4 ≤ 5…", "It MUST 1 to 2 * 3 - 4 <= 5..."},
		{"a line break", "It\n  must.", "It MUST."},
		{"a point about the service", "It must.\n  - *Service.* It holds gRPC.\n    1. Deeper.\n  - It waits.", "It MUST.\n\n  - It waits."},
		{"a named point about the service", "It must.\n  - **Name.** *Service.* It holds gRPC.", "It MUST."},
		{"points in points", "It must.\n  - One:\n    1. first;\n    2. second.\n\n    After.", "It MUST.\n\n  - One:\n\n    1. first;\n    2. second.\n\n    After."},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, faults := draftOf(t, map[string]string{"5": "- I1. *Wire.* " + row.spec + "\n"}, nil)
			if faults != nil {
				t.Fatal(faults)
			}
			_, got, _ = strings.Cut(got, "{: #rule-I1}I1 (wire)\n: ")
			got, _, _ = strings.Cut(got, "\n\n# Section")
			got, _, _ = strings.Cut(got, "\n\n[H1]: ")
			if got != row.want {
				t.Errorf("got  %q\nwant %q", got, row.want)
			}
		})
	}
}

// TestDraftParts checks paragraphs and tables.
func TestDraftParts(t *testing.T) {
	t.Parallel()
	const head = "| # | what happened | error class | failure type | retried | source |\n|---|---|---|---|---|---|\n"
	for _, row := range []struct{ name, section, spec, want string }{
		{"a table", "2", "| field | value | source |\n|---|---|---|\n| n | 3 | S2 |\n", "| field | value |\n|---|---|\n| n | 3 |"},
		{"a table without sources", "2", "| field | value |\n|---|---|\n| n | 3 |\n", "| field | value |\n|---|---|\n| n | 3 |"},
		{"a table of the service", "2", "One.\n\n*Service.* Two:\n\n| method |\n|---|\n| Explain |\n\n*Service.* Three.\n\nFour.\n", "One.\n\nFour."},
		{"a table after a point of the service", "2", "- *Service.* gRPC.\n\n| a |\n|---|\n| b |\n\nFour.\n", "Four."},
		{"a failure", "3", head + "| N1 | no name (X1); no answer | NO_NAME; NO_ANSWER | transient | never | S0 |\n",
			"{: #rule-N1}N1 (decision)\n: No name; no answer. The class MUST be NO_NAME or NO_ANSWER, in the order of these cases, and the failure type transient. The client MUST NOT retry it."},
		{"a status", "3", head + "| H1 | 500–599 | HTTP_SERVER_ERROR | transient | yes | – |\n",
			"{: #rule-H1}H1 (decision)\n: Status 500 to 599. The class MUST be HTTP_SERVER_ERROR, and the failure type transient. The client MUST retry it as far as {{retry}} permits."},
		{"an outcome", "3", head + "| H7 | 304 | outcome NOT_MODIFIED, no error | – | never | – |\n",
			"{: #rule-H7}H7 (decision)\n: Status 304. The fetch MUST end with the outcome NOT_MODIFIED, without an error."},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, faults := draftOf(t, map[string]string{row.section: row.spec}, nil)
			if faults != nil {
				t.Fatal(faults)
			}
			_, got, _ = strings.Cut(got, "{#"+anchors[row.section]+"}\n\n")
			got, _, _ = strings.Cut(got, "\n\n# Section")
			got, _, _ = strings.Cut(got, "\n\n[")
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDraftRefuses checks that no part of the specification is left out, or taken over, by accident.
func TestDraftRefuses(t *testing.T) {
	t.Parallel()
	const head = "| # | what happened | error class | failure type | retried | source |\n|---|---|---|---|---|---|\n"
	for _, row := range []struct {
		name, section, spec string
		edits               []edit
		want                string
	}{
		{"a rule without a kind", "5", "- I1. It must.\n", nil, "docs/spec.md:23: I1: say whether it is *Decision.*, *Wire.* or *Service.*"},
		{"a rule that demands nothing", "5", "- I1. *Wire.* It waits.\n", nil, "docs/spec.md:23: I1: say what must, should or may be done"},
		{"a name of the service", "5", "- I1. *Wire.* It must.\n  - The\n    gRPC status.\n", nil, `docs/spec.md:24: I1: the draft has no place for "gRPC"`},
		{"a source in a sentence", "5", "- I1. *Wire.* It must, as S2 says.\n", nil, `docs/spec.md:23: I1: the draft has no place for "S2"`},
		{"a flag", "6", "With `--egress-no-reuse`.\n", nil, `docs/spec.md:27: 6: the draft has no place for "--e"`},
		{"a rule that is not in the draft", "5", "- I1. *Wire.* It must as W5 says.\n", nil, "docs/spec.md:23: I1: the draft has no rule W5"},
		{"a rule of another section", "5", "- I1. *Wire.* It must (A3, of A2).\n", nil, "docs/spec.md:23: I1: the draft has no rule A3"},
		{"a section that is not in the draft", "5", "- I1. *Wire.* It must (§8).\n", nil, `docs/spec.md:23: I1: the draft has no place for "§"`},
		{"an unknown RFC", "5", "- I1. *Wire.* It must (RFC 9999 §1).\n", nil, "conformance/draft/frame.md has no reference, section or rule RFC9999"},
		{"another character", "5", "- I1. *Wire.* It must ☃.\n", nil, `docs/spec.md:23: I1: the draft has no place for "☃"`},
		{"a heading", "5", "### More\n", nil, "docs/spec.md:23: 5: the draft has no place for a heading"},
		{"an unknown retry", "3", head + "| H1 | 500 | ERROR | transient | perhaps | – |\n", nil, `docs/spec.md:13: H1: the draft has no sentence for "perhaps" in the column retried`},
		{"a row that is too short", "3", head + "| H1 | 500 | ERROR | transient | yes |\n", nil, "docs/spec.md:13: H1: the row has 5 cells, want 6"},
		{"a row without a number", "3", head + "| 500 | 500 | ERROR | transient | yes | – |\n", nil, "docs/spec.md:13: 3: the row has no number of a rule"},
		{"a line under a table", "2", "| a |\n|---|\n| b |\ngRPC\n", nil, `docs/spec.md:10: 2: the draft has no place for "gRPC"`},
		{"a row of another table", "2", "| a | b |\n|---|---|\n| c |\n", nil, "docs/spec.md:9: 2: the row has 1 cells, want 2"},
		{"an edit that matches nothing", "5", "- I1. *Wire.* It must.\n", []edit{{"I1", "may", "must"}}, `docs/spec.md: I1 has 0 times, not once, what the draft replaces: "may"`},
		{"an edit that matches twice", "5", "- I1. *Wire.* It must, must.\n", []edit{{"I1", "must", "may"}}, `docs/spec.md: I1 has 2 times, not once`},
		{"an edit of another rule", "5", "- I1. *Wire.* It must.\n", []edit{{"I2", "must", "may"}}, `docs/spec.md: I2 has 0 times, not once`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, faults := draftOf(t, map[string]string{row.section: row.spec}, row.edits)
			if len(faults) == 0 || !strings.HasPrefix(faults[0], row.want) {
				t.Errorf("got  %q\nwant %q", faults, row.want)
			}
		})
	}
	for frame, want := range map[string]string{
		"Nothing.\n": "conformance/draft/frame.md has no line {rules of section 2}",
		"{rules of section 2}\n\n{rules of section 3}\n": "docs/spec.md has nothing for {rules of section 3} of conformance/draft/frame.md",
		"{rules of section 2}\n\nSee [W5].\n":            "conformance/draft/frame.md has no reference, section or rule W5",
		"{rules of section 2}\n\nSee {{waiting}}.\n":     "conformance/draft/frame.md has no reference, section or rule waiting",
	} {
		if _, faults := draft("## 2. Title\n\nText.\n", frame, nil); !slices.Equal(faults, []string{want}) {
			t.Errorf("frame %q: got %q, want %q", frame, faults, want)
		}
	}
}
