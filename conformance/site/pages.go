package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fetchd/conformance"
	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/internal/rules"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/style.css
var style string

// page is what a template gets.
type page struct {
	Template, Title, File string
	Style                 template.CSS
	StyleHash             string
	Foot                  []foot
	Body                  any
}

// foot names what records were judged with.
type foot struct{ Judge, Data string }

// build writes the pages of the records in the folder from into the folder to.
func build(from, spec, to string) error {
	pages, err := render(from, spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(to, "*.html"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if pages[filepath.Base(file)] == nil {
			return fmt.Errorf("%s is no page of these records: remove it", file)
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns the pages by the names of their files.
func render(from, spec string) (map[string][]byte, error) {
	records, err := read(from)
	if err != nil {
		return nil, err
	}
	texts, err := readSpec(spec)
	if err != nil {
		return nil, err
	}
	a, err := newAbout(texts)
	if err != nil {
		return nil, err
	}
	boards, guards := a.boards(records)
	all := []page{
		{Template: "index", Title: "Conformance", File: "index.html", Body: struct {
			Levels []string
			Boards []board
			Guards board
		}{conformance.Levels, boards, guards}},
		{Template: "clients", Title: "Clients against rules", File: "clients.html", Body: boards},
		{Template: "guards", Title: "Guards against categories", File: "guards.html", Body: guards},
		{Template: "rules", Title: "The rules", File: "rules.html", Body: a.ruleTexts()},
	}
	for _, r := range records {
		all = append(all, page{Template: "evidence", Title: r.Subject, File: r.Page, Body: a.evidence(r)})
	}
	foots := make(map[foot]bool)
	for _, r := range records {
		foots[foot{r.Judge, r.Data}] = true
	}
	hash := sha256.Sum256([]byte(style))
	out := make(map[string][]byte)
	templates, err := template.New("").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		p.Style, p.StyleHash = template.CSS(style), base64.StdEncoding.EncodeToString(hash[:])
		p.Foot = slices.SortedFunc(maps.Keys(foots), func(a, b foot) int {
			return cmp.Or(strings.Compare(a.Judge, b.Judge), strings.Compare(a.Data, b.Data))
		})
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, "page", p); err != nil {
			return nil, err
		}
		out[p.File] = text.Bytes()
	}
	return out, nil
}

// about is what the rules, the vectors, the scenarios and the rows say about results.
type about struct {
	rules      map[string]*ruleText
	stories    map[string]story // by kind and name of a result
	categories []category
}

type story struct{ Text, Source string }

type category struct{ Name, About string }

func newAbout(texts map[string]*ruleText) (*about, error) {
	a := &about{rules: texts, stories: make(map[string]story)}
	vectors, err := conformance.Vectors()
	if err != nil {
		return nil, err
	}
	for i := range vectors {
		a.stories["vector "+vectors[i].Name] = story{vectors[i].Why, vectors[i].Source}
	}
	scenarios, err := conformance.Scenarios()
	if err != nil {
		return nil, err
	}
	for i := range scenarios {
		a.stories["scenario "+scenarios[i].Name] = story{scenarios[i].Story, scenarios[i].Source}
	}
	rows, err := conformance.GuardRows()
	if err != nil {
		return nil, err
	}
	for i := range rows {
		r := &rows[i]
		a.stories["guard row "+r.Name] = story{r.Why, r.Source}
		if !slices.ContainsFunc(a.categories, func(c category) bool { return c.Name == r.Category }) {
			a.categories = append(a.categories, category{r.Category, r.About})
		}
	}
	return a, nil
}

// ruleTexts returns the rules in the order of the specification.
func (a *about) ruleTexts() (all []*ruleText) {
	for _, r := range rules.All {
		all = append(all, a.rules[r.ID])
	}
	return all
}

// tally counts verdicts.
type tally struct{ Held, Failed, Reported int }

// Judged is the number of results that are held or not.
func (t tally) Judged() int { return t.Held + t.Failed + t.Reported }

func (t *tally) add(v kit.Verdict) {
	switch v {
	case kit.Held:
		t.Held++
	case kit.Failed:
		t.Failed++
	case reported:
		t.Reported++
	}
}

// State is how a cell looks. A category in which something is reported does not say how much: that would tell which rows
// fail.
func (t tally) State() string {
	switch {
	case t.Reported > 0:
		return "reported"
	case t.Judged() == 0:
		return "none"
	case t.Failed == 0:
		return "held"
	case t.Held == 0:
		return "failed"
	default:
		return "partly"
	}
}

// group is what a record says about a rule or a category.
type group struct {
	tally
	ID, About     string
	Day           string    // on which it was reported
	Rule          *ruleText // nil if the specification does not have it
	Anchor, Href  string    // of the evidence
	Failing, Kept []*item
}

// item is a result.
type item struct {
	story
	ID, Name, Kind string
	Rules          []*group // only ID and Rule
	Failures       []string
	Reproduce      string
}

// groups returns what a record says about each rule, or each category of a guard, in this order.
func (a *about) groups(r *record) []*group {
	all := make(map[string]*group)
	for i := range r.Results {
		x := &r.Results[i]
		ids := x.Rules
		if r.Way == "guard" && x.Level != "" { // empty for a row that this program does not know
			ids = []string{x.Level}
		}
		for _, id := range ids {
			g := all[id]
			if g == nil {
				g = a.group(id)
				g.Day = r.Days[id]
				if g.Anchor = id; r.Way == "guard" {
					g.Anchor = "category-" + safe(id)
				}
				g.Href = r.Page + "#" + g.Anchor
				all[id] = g
			}
			g.add(x.Verdict)
			switch x.Verdict {
			case kit.Held:
				g.Kept = append(g.Kept, a.item(r, x))
			case kit.Failed:
				g.Failing = append(g.Failing, a.item(r, x))
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), a.compare)
}

// group returns the group of a rule or a category.
func (a *about) group(id string) *group {
	g := &group{ID: id, Rule: a.rules[id]}
	if g.Rule != nil {
		g.About = g.Rule.Sentence
	}
	for _, c := range a.categories {
		if c.Name == id {
			g.About = c.About
		}
	}
	return g
}

// compare orders rules as the specification does, and categories as their files. Others come after.
func (a *about) compare(x, y *group) int {
	place := func(g *group) int {
		at := slices.IndexFunc(rules.All, func(r rules.Rule) bool { return r.ID == g.ID })
		if at < 0 {
			at = slices.IndexFunc(a.categories, func(c category) bool { return c.Name == g.ID })
		}
		if at < 0 {
			at = len(rules.All)
		}
		return at
	}
	return cmp.Or(cmp.Compare(place(x), place(y)), strings.Compare(x.ID, y.ID))
}

func (a *about) item(r *record, x *judge.RecordResult) *item {
	it := &item{story: a.stories[x.Kind+" "+x.Name], ID: "result-" + safe(x.Kind+" "+x.Name), Name: x.Name, Kind: x.Kind, Failures: x.Failures, Reproduce: command(r, x.Name)}
	if x.Verdict == kit.Failed && r.Way == "guard" {
		it.Text = "" // the failure ends with it
	}
	for _, id := range x.Rules {
		it.Rules = append(it.Rules, a.group(id))
	}
	return it
}

// board is a table of the records of a way.
type board struct {
	Title, Way string
	Records    []*summary
	Rows       []*row
}

// summary is a record with its levels.
type summary struct {
	*record
	tally
	Groups map[string]*group
}

// row is a rule or a category, and what each record says about it.
type row struct {
	*group
	Cells []*group // nil for a record that is not judged by it
}

// boards returns a table for each way to judge rules, and that of guards.
func (a *about) boards(records []*record) (boards []board, guards board) {
	for _, b := range []board{{Way: "client", Title: "HTTP clients"}, {Way: "service", Title: "Services"}, {Way: "decide", Title: "Programs that decide"}, {Way: "guard", Title: "Guards"}} {
		rows := make(map[string]*row)
		for _, r := range records {
			if r.Way != b.Way {
				continue
			}
			s := &summary{record: r, Groups: make(map[string]*group)}
			for i := range r.Results {
				s.add(r.Results[i].Verdict)
			}
			for _, g := range a.groups(r) {
				s.Groups[g.ID] = g
				if g.Judged() > 0 && rows[g.ID] == nil {
					rows[g.ID] = &row{group: a.group(g.ID)}
				}
			}
			b.Records = append(b.Records, s)
		}
		b.Rows = slices.SortedFunc(maps.Values(rows), func(x, y *row) int { return a.compare(x.group, y.group) })
		for _, row := range b.Rows {
			for _, s := range b.Records {
				row.Cells = append(row.Cells, s.Groups[row.ID])
			}
		}
		switch {
		case b.Way == "guard":
			guards = b
		case len(b.Records) > 0:
			boards = append(boards, b)
		}
	}
	return boards, guards
}

// evidence is the page of a record.
type evidence struct {
	*record
	tally
	Groups    []*group
	Items     []*item // that failed
	Others    int     // that were not judged
	Reproduce string
}

func (a *about) evidence(r *record) *evidence {
	e := &evidence{record: r, Groups: a.groups(r), Reproduce: cmp.Or(r.Reproduce, command(r, ""))}
	e.Groups = slices.DeleteFunc(e.Groups, func(g *group) bool { return g.Judged() == 0 })
	for i := range r.Results {
		x := &r.Results[i]
		e.add(x.Verdict)
		if x.Verdict == kit.Failed {
			e.Items = append(e.Items, a.item(r, x))
		}
	}
	for _, l := range r.Levels {
		e.Others += l.Other
	}
	return e
}

// command returns the command that judges a record again, or only one of its results.
func command(r *record, name string) string {
	words := []string{"fetch-conformance", r.Way, "--name", r.Subject}
	if name != "" {
		words = append(words, "--only", name)
	}
	switch r.Way {
	case "service":
		words = append(words, "HOST:PORT")
	case "guard":
		words = append([]string{"sudo"}, append(words, kinds[r.Kind]...)...)
	}
	return shell(append(words, strings.Fields(r.Command)...))
}

// kinds are the flags for each kind of a guard.
var kinds = map[string][]string{
	"HTTP proxy":                             {"--proxy", "HOST:PORT"},
	"MCP server":                             {"--mcp"},
	"string check with a plain fetch behind": {"--string-check"},
}

var bare = regexp.MustCompile(`^(?:[\w./:=@%+-]|\{(?:url|out|ca)\})+$`)

// shell quotes words for a POSIX shell where that is needed.
func shell(words []string) string {
	quoted := slices.Clone(words)
	for i, word := range words {
		if !bare.MatchString(word) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
