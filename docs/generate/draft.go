package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	specFile  = "docs/spec.md"
	frameFile = "conformance/draft/frame.md"
)

// anchors are the anchors of the draft for the sections of docs/spec.md from which it has the rules.
var anchors = map[string]string{"2": "profiles", "3": "classification", "4": "waiting", "5": "retry", "6": "redirects", "7": "body"}

// outsideRules are rules of another section that the draft may name: its frame says what they stand for.
var outsideRules = []string{"A2", "A8"}

// edit is a change of the words of a rule, or of a section without a rule. It must match exactly once, so that a change of
// docs/spec.md cannot pass it by.
type edit struct{ where, from, to string }

// edits replace what only this service has, or what needs another section.
var edits = []edit{
	{"2", "S0 to S3 fit together into one rule set, `STANDARD`, which is the default. S4 differs in numbers and in two rows (N5, H5). Its rule set is `DOWNLOAD`.",
		"There are two profiles: `STANDARD` is the default, and `DOWNLOAD` is for large files. They differ in numbers and in the rules N5 and H5."},
	{"2", ` The effective policy is reported before the first attempt. Choosing DOWNLOAD, or a jitter, is the "explicitly enabled by configuration" of S2 §9.`, ""},
	{"2", "none, the server's maximum", "the client's maximum"},
	{"2", "the server's maximum (1 TiB)", "the client's maximum"},
	{"2", "max_size_bytes; with `inline` at most 1 MiB", "max_size_bytes"},
	{"2", "float64 nanoseconds", "nanoseconds, in binary floating-point numbers of 64 bits,"},
	{"2", "splitmix64(x) is the first output of the generator SplitMix64 whose state is x, so splitmix64(0) is 0xE220A8397B1DCDAF.", "The function is that of {{splitmix64}}."},
	{"2", "one is drawn and reported in the effective policy, so", "the client must draw one and report it, so"},
	{"2", `"A few seconds" (S1 Backoff) describes STANDARD. DOWNLOAD has longer waits (X12).`, ""},
	{"N11", "attempt_timeout expired", "the attempt_timeout expired"},
	{"H6", "(the documents name 400, 404, 409, 410, 422, 451)", "(for example 400, 404, 409, 410, 422, 451)"},
	{"R4", "the failure type its own", "the failure type that of this class"},
	{"C5", "; with `store`, a body that is only a part (B8, reason `partial_content`)", ""},
	{"P2", "malformed task (in FetchMany; in other methods it is a gRPC INVALID_ARGUMENT)", "malformed request"},
	{"P5", "this server", "the client"},
	{"P6", "this server", "the client"},
	{"P7", "the server has left for fetches", "the client has left"},
	{"P8", "a store did not take the body (B8) or the records (B9)", "the body could not be written to where the caller wants it"},
	{"3", "what this server or the caller did", "what the client or the caller did"},
	{"3", "because Go gives the same error for both", "because many libraries have one error for both"},
	{"W3", " for the scheduler", " for the caller"},
	{"I4", "a 401 without a provider", "a 401 whose credential cannot be refreshed"},
	{"B6", "the service must ask", "the client must ask"},
}

// retries say what follows from the column "retried" of the table of rules.
var retries = map[string]string{
	"–":                         "The attempt MUST be the last one.",
	"never":                     "The client MUST NOT retry it.",
	"yes":                       "The client MUST retry it as far as {{retry}} permits.",
	"yes, in both profiles":     "The client MUST retry it as far as {{retry}} permits, in both profiles.",
	"yes, see §7":               "The client MUST retry it as far as {{retry}} and {{body}} permit.",
	"yes, bounded (§4)":         "The client MUST retry it as far as {{waiting}} and {{retry}} permit.",
	"DOWNLOAD yes, STANDARD no": "The client MUST retry it in the profile DOWNLOAD as far as {{retry}} permits, and MUST NOT retry it in STANDARD.",
	"its own":                   "The client MUST retry it as the rule of that class says.",
	"retry_tls_handshake: STANDARD yes, DOWNLOAD no":                  "The client MUST retry it as far as {{retry}} permits if retry_tls_handshake is yes, and MUST NOT retry it otherwise.",
	"only through an auth provider (§8)":                              "The client MUST NOT retry it, unless it has refreshed the credential (A2).",
	"only if it asks for a signature and the operator allows it (A8)": "The client MUST NOT retry it, unless the response asks for a signature and the client is configured to give one (A8).",
}

var (
	specSection = regexp.MustCompile(`(?m)^## (\d+)\. .*\n`)
	specLine    = regexp.MustCompile(`^( *)(- |\d+\. )?(.*)$`)
	specRule    = regexp.MustCompile(`^([A-Z]\d+)\. (?:\*(Decision|Wire|Service)\.\* )?(.*)$`)
	serviceOnly = regexp.MustCompile(`^(?:\*\*[^*]+\*\* )?\*Service\.\* `)
	inBrackets  = regexp.MustCompile(` ?\(([^()]*)\)`)
	fromSources = regexp.MustCompile(`\bS[0-4]\b|\bX\d+\b|\bdecision \d`)
	ruleNumber  = regexp.MustCompile(`\b[A-RT-WYZ]\d{1,2}\b`)
	onlyNumbers = regexp.MustCompile(`^[A-RT-WYZ]\d{1,2}(?:, [A-RT-WYZ]\d{1,2})*$`)
	rfcSection  = regexp.MustCompile(`\bRFC (\d+) §([\d.]*\d)`)
	ownSection  = regexp.MustCompile(`§([2-7])\b`)
	keyWord     = regexp.MustCompile(`\b(?:must|should)(?: not)?\b|\bmay\b`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	// unplaced is what a document about any client does not say: names of this service and of its sources.
	unplaced = regexp.MustCompile(`(?i:\b(?:grpc|fetchmany|fetchunary|explain|responsestarted|attemptfinished|redirectfollowed|` +
		`admitted|bodychunk|operators?|schedulers?|fetchd|frontier|servers?|services?|departures?)\b)|\bGo\b|` +
		`INVALID_ARGUMENT|RESOURCE_EXHAUSTED|UNIMPLEMENTED|ABORTED|--\w|\.md\b|\]\(|§|[^\x00-\x7f]|` + fromSources.String())
	placeholder = regexp.MustCompile(`(?m)^\{rules of section (\d+)\}$`) // in the frame
	reference   = regexp.MustCompile(`\{\{(?:Section [\d.]+ of )?([\w-]+)\}\}|\[([A-Z]\d+)\]`)
)

// ascii replaces characters that a draft does not need.
var ascii = strings.NewReplacer("–", " to ", "·", "*", "−", "-", "…", "...", "≤", "<=")

// block is a paragraph, a point of a list, a table or a row of a table.
type block struct {
	line  int
	where string // the rule that it belongs to, or the section
	kind  string // of the rule that begins here: decision, wire, service or unknown
	depth int    // in lists
	mark  string // of a point: "- " or "1. "
	text  string
	rows  []block // of a table, without the line below its head
}

// draftText returns the Internet-Draft.
func draftText() (string, error) {
	spec, err := os.ReadFile(specFile)
	if err != nil {
		return "", err
	}
	frame, err := os.ReadFile(frameFile)
	if err != nil {
		return "", err
	}
	text, faults := draft(string(spec), string(frame), edits)
	if len(faults) > 0 {
		return "", errors.New(strings.Join(faults, "\n"))
	}
	return text, nil
}

// drafter writes the draft.
type drafter struct {
	edits   []edit
	matched []int           // how often each edit matched
	known   map[string]bool // the rules in the draft
	faults  []string
}

// draft returns the frame with the rules of sections 2 to 7 of the specification, without what is marked *Service.*
// There are faults if a part of them has no place in it.
func draft(spec, frame string, edits []edit) (text string, faults []string) {
	d := drafter{edits: edits, matched: make([]int, len(edits)), known: make(map[string]bool)}
	sections := make(map[string][]block)
	var links strings.Builder
	starts := append(specSection.FindAllStringSubmatchIndex(spec, -1), []int{len(spec)})
	for i, at := range starts[:len(starts)-1] {
		number := spec[at[2]:at[3]]
		if anchors[number] == "" {
			continue
		}
		sections[number] = d.keep(d.parse(number, spec[at[1]:starts[i+1][0]], strings.Count(spec[:at[1]], "\n")+1))
		for _, b := range sections[number] {
			for _, rule := range append(b.rows, b) {
				if rule.kind != "" {
					d.known[rule.where] = true
					fmt.Fprintf(&links, "[%s]: #rule-%[1]s\n{: format=\"none\"}\n\n", rule.where)
				}
			}
		}
	}
	text = placeholder.ReplaceAllStringFunc(frame, func(line string) string {
		number := placeholder.FindStringSubmatch(line)[1]
		all := sections[number]
		if len(all) == 0 {
			d.faults = append(d.faults, fmt.Sprintf("%s has nothing for %s of %s", specFile, line, frameFile))
		}
		delete(sections, number)
		return strings.TrimSpace(d.section(all))
	})
	for _, number := range slices.Sorted(maps.Keys(sections)) {
		d.faults = append(d.faults, fmt.Sprintf("%s has no line {rules of section %s}", frameFile, number))
	}
	for i, n := range d.matched {
		if n != 1 {
			d.faults = append(d.faults, fmt.Sprintf("%s: %s has %d times, not once, what the draft replaces: %q", specFile, edits[i].where, n, edits[i].from))
		}
	}
	d.cited(text)
	return strings.Replace(text, "\n--- back\n", "\n"+links.String()+"--- back\n", 1), d.faults
}

// cited checks that the draft has the references, sections and rules that it cites.
func (d *drafter) cited(text string) {
	checked := make(map[string]bool)
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		name := m[1] + m[2]
		if !checked[name] && !d.known[name] && !strings.Contains(text, "\n  "+name+":\n") && !strings.Contains(text, "{#"+name+"}") {
			d.faults = append(d.faults, fmt.Sprintf("%s has no reference, section or rule %s", frameFile, name))
		}
		checked[name] = true
	}
}

func (d *drafter) fail(b block, format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf("%s:%d: %s: %s", specFile, b.line, b.where, fmt.Sprintf(format, args...)))
}

// parse returns the parts of a section, whose text begins at a line.
func (d *drafter) parse(section, text string, line int) (all []block) {
	where, open := section, false // the next line continues the last block if that is open
	for text := range strings.Lines(text) {
		m := specLine.FindStringSubmatch(strings.TrimRight(text, "\n"))
		b := block{line: line, where: where, depth: len(m[1]) / 2, mark: m[2], text: strings.TrimSpace(m[3])}
		line++
		last := len(all) - 1
		switch {
		case b.text == "":
			open = false
			continue
		case strings.HasPrefix(b.text, "#"):
			d.fail(b, "the draft has no place for a heading")
			open = false
			continue
		case strings.HasPrefix(b.text, "|-"):
		case open && strings.HasPrefix(b.text, "|"):
			all[last].rows = append(all[last].rows, row(b))
		case strings.HasPrefix(b.text, "|"):
			where = section
			all = append(all, block{line: b.line, where: section, rows: []block{row(b)}})
		case open && b.mark == "" && all[last].rows == nil:
			all[last].text += " " + b.text
		default:
			if b.depth == 0 {
				b.where = section
				if m := specRule.FindStringSubmatch(b.text); m != nil && b.mark != "" {
					b.where, b.kind, b.text = m[1], cmp.Or(strings.ToLower(m[2]), "unknown"), m[3]
				}
				where = b.where
			}
			all = append(all, b)
		}
		open = true
	}
	return all
}

// row returns a row of a table.
func row(b block) block {
	if id := cells(b.text)[0]; ruleNumber.FindString(id) == id && id != "" {
		b.where, b.kind = id, "decision"
	}
	return b
}

func cells(row string) []string {
	return strings.Split(strings.Trim(row, "| "), " | ")
}

// keep returns the blocks that are not about this service only. A point is dropped with the points below it, and a
// paragraph with the table that follows it.
func (d *drafter) keep(all []block) (kept []block) {
	dropped := -1 // the depth of what is dropped
	for i, b := range all {
		switch {
		case dropped >= 0 && (b.depth > dropped || b.rows != nil && all[i-1].rows == nil):
		case b.kind == "service", serviceOnly.MatchString(b.text):
			dropped = b.depth
		case b.kind == "unknown":
			d.fail(b, "say whether it is *Decision.*, *Wire.* or *Service.*")
		default:
			dropped = -1
			kept = append(kept, b)
		}
	}
	return kept
}

// section returns the text of a section for the draft.
func (d *drafter) section(all []block) string {
	var out strings.Builder
	for i, b := range all {
		switch {
		case b.rows != nil && cells(b.rows[0].text)[0] == "#":
			for _, rule := range b.rows[1:] {
				if rule.kind == "" {
					d.fail(rule, "the row has no number of a rule")
				}
				fmt.Fprintf(&out, "\n{: #rule-%s}%[1]s (decision)\n: %s\n", rule.where, d.classRule(rule))
			}
		case b.rows != nil:
			out.WriteString(d.table(b))
		case b.kind != "":
			d.demands(b, all[i+1:])
			fmt.Fprintf(&out, "\n{: #rule-%s}%[1]s (%s)\n: %s\n", b.where, b.kind, d.words(b, b.text))
		default:
			text := d.words(b, b.text)
			if text == "" {
				continue
			}
			if before := all[max(i-1, 0)]; b.mark == "" || before.mark == "" || before.depth < b.depth || before.kind != "" {
				out.WriteString("\n")
			}
			out.WriteString(strings.Repeat("  ", b.depth) + b.mark + text + "\n")
		}
	}
	return out.String()
}

// demands checks that a rule demands or permits something, in its first paragraph or in one of its points.
func (d *drafter) demands(rule block, rest []block) {
	text := rule.text
	for _, b := range rest {
		if b.where != rule.where {
			break
		}
		text += " " + b.text
	}
	if !keyWord.MatchString(text) {
		d.fail(rule, "say what must, should or may be done")
	}
}

// table returns a table, without its column of sources.
func (d *drafter) table(b block) string {
	var out strings.Builder
	columns := cells(b.rows[0].text)
	n := len(columns)
	if columns[n-1] == "source" {
		n--
	}
	for i, row := range b.rows {
		of := cells(row.text)
		if len(of) != len(columns) {
			d.fail(row, "the row has %d cells, want %d", len(of), len(columns))
			continue
		}
		fmt.Fprintf(&out, "\n| %s |", d.words(row, strings.Join(of[:n], " | ")))
		if i == 0 {
			out.WriteString("\n" + strings.Repeat("|---", n) + "|")
		}
	}
	return "\n" + strings.TrimSpace(out.String()) + "\n"
}

// classRule returns the sentences of a row of the table of rules.
func (d *drafter) classRule(b block) string {
	of := cells(b.text) // number, what happened, class, failure type, retried, source
	if len(of) != 6 {
		d.fail(b, "the row has %d cells, want 6", len(of))
		return ""
	}
	happened, class, failure := of[1], of[2], of[3]
	retry, found := retries[of[4]]
	if !found {
		d.fail(b, "the draft has no sentence for %q in the column retried", of[4])
	}
	if happened[0] <= '9' {
		happened = "status " + happened
	}
	text := happened + ". "
	outcome, isOutcome := strings.CutSuffix(class, ", no error")
	first, second, two := strings.Cut(class, "; ")
	switch {
	case isOutcome:
		text += "The fetch must end with the " + outcome + ", without an error."
	case two:
		text += "The class must be " + first + " or " + second + ", in the order of these cases"
	default:
		text += "The class must be " + class
	}
	if !isOutcome {
		text += ", and the failure type " + failure + ". " + retry
	}
	text = d.words(b, text)
	return strings.ToUpper(text[:1]) + text[1:]
}

// words returns what a part of the specification says in the draft.
func (d *drafter) words(b block, text string) string {
	for i, e := range d.edits {
		if e.where == b.where {
			d.matched[i] += strings.Count(text, e.from)
			text = strings.ReplaceAll(text, e.from, e.to)
		}
	}
	text = inBrackets.ReplaceAllStringFunc(text, d.note)
	text = rfcSection.ReplaceAllString(text, "{{Section $2 of RFC$1}}")
	text = strings.ReplaceAll(text, "Fetch standard", "{{FETCH}}")
	text = ownSection.ReplaceAllStringFunc(text, func(s string) string { return "{{" + anchors[strings.TrimPrefix(s, "§")] + "}}" })
	text = ascii.Replace(text)
	var out strings.Builder
	for text != "" {
		at := codeSpan.FindStringIndex(text)
		if at == nil {
			at = []int{len(text), len(text)}
		}
		plain := keyWord.ReplaceAllStringFunc(text[:at[0]], strings.ToUpper)
		out.WriteString(ruleNumber.ReplaceAllStringFunc(plain, func(id string) string {
			if !d.known[id] && !slices.Contains(outsideRules, id) {
				d.fail(b, "the draft has no rule %s: mark the sentence *Service.*, or change its words in docs/generate", id)
			}
			if d.known[id] {
				id = "[" + id + "]"
			}
			return id
		}))
		out.WriteString(text[at[0]:at[1]])
		text = text[at[1]:]
	}
	text = strings.TrimSpace(out.String())
	if word := unplaced.FindString(text); word != "" {
		d.fail(b, "the draft has no place for %q: mark the sentence *Service.*, or change its words in docs/generate", word)
	}
	return text
}

// note returns a text in brackets without sources, and without rules that the draft does not have.
func (d *drafter) note(text string) string {
	parts := strings.Split(inBrackets.FindStringSubmatch(text)[1], "; ")
	kept := slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
		return fromSources.MatchString(part) || onlyNumbers.MatchString(part) && !slices.ContainsFunc(ruleNumber.FindAllString(part, -1), func(id string) bool {
			return d.known[id] || slices.Contains(outsideRules, id)
		})
	})
	switch len(kept) {
	case 0:
		return ""
	case len(parts):
		return text
	}
	return text[:strings.Index(text, "(")+1] + strings.Join(kept, "; ") + ")"
}
