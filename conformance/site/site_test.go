package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"fetchd/conformance/judge"
)

const (
	fixtures = "testdata/results"
	specFile = "../../docs/spec.md"
)

// pagesOf renders the pages of a folder.
func pagesOf(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	pages, err := render(folder, specFile)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// elements returns all elements of a page.
func elements(t *testing.T, page []byte) (all []*html.Node) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var words []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			words = append(words, strings.Fields(d.Data)...)
		}
	}
	return strings.Join(words, " ")
}

// faults checks that every link of the pages leads to one of them and to an element in it, and that nothing runs.
func faults(t *testing.T, pages map[string][]byte) (all []string) {
	t.Helper()
	fault := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	known := []string{"a", "article", "b", "body", "br", "code", "dd", "details", "div", "dl", "dt", "em", "footer", "h1", "h2", "h3", "head", "header",
		"html", "li", "main", "meta", "nav", "p", "pre", "section", "small", "span", "strong", "style", "summary", "table", "tbody", "td", "th", "thead", "title", "tr", "ul"}
	ids := make(map[string]bool)
	for name, page := range pages {
		ids[name] = true
		for _, e := range elements(t, page) {
			if id := attribute(e, "id"); id != "" {
				if ids[name+"#"+id] {
					fault("%s: two elements have the id %s", name, id)
				}
				ids[name+"#"+id] = true
			}
		}
	}
	for name, page := range pages {
		for _, e := range elements(t, page) {
			if !slices.Contains(known, e.Data) {
				fault("%s: an element %s", name, e.Data)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" {
					fault("%s: %s has an attribute %s", name, e.Data, a.Key)
				}
			}
			if by := attribute(e, "aria-labelledby"); by != "" && !ids[name+"#"+by] {
				fault("%s: the label %s is missing", name, by)
			}
			if e.Data != "a" {
				continue
			}
			to := attribute(e, "href")
			if strings.HasPrefix(to, "#") {
				to = name + to
			}
			if !ids[to] {
				fault("%s: %q leads nowhere", name, to)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestPages checks the pages of the test records, and of those that are kept here, for links that lead nowhere. The same
// records give the same bytes.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{fixtures, "../results"} {
		if _, err := os.Stat(folder); err != nil && folder != fixtures {
			continue
		}
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			pages := pagesOf(t, folder)
			for _, fault := range faults(t, pages) {
				t.Error(fault)
			}
			size := 0
			for name, again := range pagesOf(t, folder) {
				size += len(again)
				if !bytes.Equal(pages[name], again) {
					t.Errorf("%s: the same records gave other bytes", name)
				}
			}
			if size > 8<<20 {
				t.Errorf("the pages have %d bytes, want at most 8 MiB", size)
			}
		})
	}
}

// TestFaults checks that faults finds what is wrong with pages.
func TestFaults(t *testing.T) {
	t.Parallel()
	got := faults(t, map[string][]byte{"a.html": []byte(`<p id=x>1<p id=x>2<a href="#y">3</a><a href="b.html">4</a><a href="#x" onclick="x">5</a><script>6</script><section aria-labelledby=z>`)})
	want := []string{
		`a.html: "a.html#y" leads nowhere`, `a.html: "b.html" leads nowhere`, "a.html: a has an attribute onclick", "a.html: an element script",
		"a.html: the label z is missing", "a.html: two elements have the id x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// tableOf returns the rows of a table, each as the texts of its cells.
func tableOf(t *testing.T, page []byte, number int) (rows []string) {
	t.Helper()
	for _, e := range elements(t, page) {
		if e.Data == "table" {
			number--
		}
		if e.Data != "tr" || number != 0 {
			continue
		}
		var cells []string
		for c := range e.ChildNodes() {
			if c.Type == html.ElementNode {
				cells = append(cells, textOf(c))
			}
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	return rows
}

func TestTables(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t, fixtures)
	short := func(rows []string) (all []string) { // without the sentences of rules
		for _, row := range rows {
			all = append(all, regexp.MustCompile(`^([A-Z]\d+)[^|]*`).ReplaceAllString(row, "$1 "))
		}
		return all
	}
	for _, tt := range []struct {
		name, page string
		number     int
		want       []string
	}{
		{"levels", "index.html", 1, []string{
			"name | core | waiting | redirects | bodies | resumption | version",
			"careful | ✓ whole 4 held | ✓ whole 2 held | ✓ whole 2 held | ✓ whole 1 held | ✓ whole 1 held | careful 3.4",
			"careless | ◐ 3 failed 1 held | ◐ 1 failed 1 held | ✗ 2 failed 0 held | ✗ 1 failed 0 held | ✗ 1 failed 0 held | careless 1.2, --retry 3",
		}},
		{"a level that is not judged", "index.html", 2, []string{
			"name | core | waiting | redirects | bodies | resumption | version",
			"the service | ✓ whole 1 held | ✓ whole 1 held | – | – | – | ",
		}},
		{"rules, without B7, which does not apply", "clients.html", 1, []string{
			"rule | careful | careless", "N4 | ✓ 1/1 | ✗ 0/1", "N8 | ✓ 1/1 | ✗ 0/1", "H0 | ✓ 1/1 | ✓ 1/1", "H1 | ✓ 2/2 | ◐ 1/2", "H8 | ✓ 1/1 | ✗ 0/1", "R2 | ✓ 2/2 | ✗ 0/2",
			"W1 | ✓ 1/1 | ✓ 1/1", "W2 | ✓ 1/1 | ✗ 0/1", "B1 | ✓ 1/1 | ✗ 0/1", "B2 | ✓ 1/1 | ✗ 0/1",
		}},
		{"categories", "guards.html", 1, []string{
			"guard | addresses | spellings | names | rebinding | redirects | confusion | proxies | allowed",
			"of-strings string check with a plain fetch behind | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✗ 0/5 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3",
			"right HTTP client | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3",
			"told HTTP proxy | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ◐ 3/5 | ⚑ reported 2026-11-27 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3",
			"wrong HTTP client | ◐ 3/5 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3 | ◐ 3/4 | ✓ 3/3 | ✓ 3/3 | ✓ 3/3",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, short(tableOf(t, pages[tt.page], tt.number))); diff != "" {
				t.Errorf("table %d of %s (-want +got):\n%s", tt.number, tt.page, diff)
			}
		})
	}
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t, fixtures)
	a, err := newAbout(nil)
	if err != nil {
		t.Fatal(err)
	}
	source := func(result string) string { return a.stories[result].Source }
	for _, tt := range []struct{ name, page, id, want string }{
		{"a failed scenario", "client-careless.html", "result-" + safe("scenario 599 then 200"), "✗ 599 then 200 The last status of the range is a server error too. " +
			"H1: with the origin at http doing /s/KEY/599/200:size=500, exit status must be 0 and is 22. H1: with the origin at http doing /s/KEY/599/200:size=500, requests must be 2 and is 1. " +
			"Rules: H1 . Source: " + source("scenario 599 then 200") + ". fetch-conformance client --name careless --only '599 then 200' ./careless -o {out} {url}"},
		{"a rule that failed in part", "client-careless.html", "H1", "◐ H1 1/2 500 to 599: transient, retried. ✗ 599 then 200 1 held " +
			"✓ 503 then 200 : The origin is overloaded once. The second attempt gets the page."},
		{"a vector", "decide-decider.html", "result-" + safe("vector standard-599"), "✗ standard-599 599 is the last status of the retried range. " +
			`H1: for the observation {"response":{"status":599}}, outcome must be failed and is succeeded. Rules: H1 . Source: ` + source("vector standard-599") +
			". fetch-conformance decide --name decider --only standard-599 ./decide"},
		{"a row of a guard", "guard-wrong.html", "result-" + safe("guard row mapped-private"), "✗ mapped-private For http://[::ffff:10.0.0.1]/ no connection to 10.0.0.1 was allowed, and one was opened. " +
			"A socket connects to the IPv4 address inside, which is private. Source: " + source("guard row mapped-private") + ". sudo fetch-conformance guard --name wrong --only mapped-private ./wrong {url}"},
		{"a row of a proxy", "guard-told.html", "result-" + safe("guard row rebound-at-third-hop"), "✗ rebound-at-third-hop For http://rebound-at-third-hop.example.com/start no connection to 10.0.0.1 was allowed, and one was opened. " +
			"The name gets another address before the second redirect to it is followed. Source: " + source("guard row rebound-at-third-hop") + ". sudo fetch-conformance guard --name told --only rebound-at-third-hop --proxy HOST:PORT ./told {url}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got string
			for _, e := range elements(t, pages[tt.page]) {
				if attribute(e, "id") == tt.id {
					got = textOf(e)
				}
			}
			if got != tt.want {
				t.Errorf("%s#%s says\n%s\nwant\n%s", tt.page, tt.id, got, tt.want)
			}
		})
	}
}

// TestReported checks that nothing is said about a category with a reported row: the rows that hold would tell which do
// not, and so would numbers.
func TestReported(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t, fixtures)
	told := string(pages["guard-told.html"])
	record := new(judge.Record)
	text, err := os.ReadFile(filepath.Join(fixtures, "guard/told.json"))
	if err == nil {
		err = json.Unmarshal(text, record)
	}
	if err != nil {
		t.Fatal(err)
	}
	hidden := 0
	for _, r := range record.Results {
		shown := strings.Contains(told, r.Name)
		if r.Level == "redirects" {
			hidden++
		}
		if shown == (r.Level == "redirects") {
			t.Errorf("%s of %s is on the page: %t", r.Name, r.Level, shown)
		}
	}
	if hidden < 3 || !strings.Contains(told, "a category is reported") || regexp.MustCompile(`\d+ of \d+ held`).MatchString(told) {
		t.Errorf("%d rows are hidden, and the page says\n%s", hidden, told)
	}
}

// change copies the test records and changes one of them.
func change(t *testing.T, name string, edit func(map[string]any)) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(fixtures)); err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	edit(record)
	if text, err = json.Marshal(record); err == nil {
		err = os.WriteFile(filepath.Join(folder, name), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// results returns the names of the results of a record by verdict and kind.
func results(record map[string]any) map[string]any {
	all, _ := record["results"].(map[string]any)
	names, _ := all["names"].(map[string]any)
	return names
}

func TestRejected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file string
		edit       func(map[string]any)
		want       string
	}{
		{"another format", "careless.json", func(r map[string]any) { r["format"] = "fetch-conformance-record/1" }, "careless.json: the format is"},
		{"no format", "careless.json", func(r map[string]any) { clear(r) }, "careless.json: the format is"},
		{"the name of another", "careless.json", func(r map[string]any) { r["subject"] = "careful" }, `careless.json: the name "careful" is also that of`},
		{"no name", "careless.json", func(r map[string]any) { r["subject"] = "" }, "careless.json: it has no name"},
		{"no results", "careless.json", func(r map[string]any) { r["results"] = nil }, "careless.json: it has no name or no results"},
		{"a guard among the clients", "careless.json", func(r map[string]any) { r["way"] = "guard" }, `careless.json: a record of way "guard"`},
		{"a client among the guards", "guard/wrong.json", func(r map[string]any) { r["way"] = "client" }, `wrong.json: a record of way "client"`},
		{"an unknown way", "careless.json", func(r map[string]any) { r["way"] = "../x" }, `careless.json: a record of way "../x"`},
		{"an unknown verdict", "careless.json", func(r map[string]any) { results(r)["perhaps"] = map[string]any{"scenario": []string{"new"}} }, `the verdict "perhaps"`},
		{"a client that is reported", "careless.json", func(r map[string]any) { results(r)["reported"] = map[string]any{"scenario": []string{"new"}} }, `the verdict "reported"`},
		{"a result twice", "careless.json", func(r map[string]any) {
			results(r)["not run"] = map[string]any{"scenario": []string{"503 then 200"}}
		}, `scenario "503 then 200" has two results`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := render(change(t, tt.file, tt.edit), specFile)
			if err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	t.Run("no records", func(t *testing.T) {
		t.Parallel()
		if _, err := render(t.TempDir(), specFile); err == nil {
			t.Error("an empty folder gives pages")
		}
	})
	t.Run("a specification without a rule", func(t *testing.T) {
		t.Parallel()
		if _, err := render(fixtures, "records.go"); err == nil || !strings.Contains(fmt.Sprint(err), "rule N1 is missing") {
			t.Errorf("error %v, want one about rule N1", err)
		}
	})
}

// TestHostile checks that a record cannot write outside the folder, run anything, or hide text.
func TestHostile(t *testing.T) {
	t.Parallel()
	const evil = "../../<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[2J javascript:alert(1)"
	edit := func(r map[string]any) {
		for _, field := range []string{"judge", "data", "kind", "subject", "command", "version", "reproduce"} {
			r[field] = evil
		}
		names := results(r)
		names["failed"] = map[string]any{evil: []string{evil + "0"}, "scenario": []string{evil + "1", "503 then 200"}}
		names["held"] = map[string]any{evil: []string{evil + "2"}}
		r["results"] = map[string]any{"names": names, "failures": map[string]any{
			evil: map[string]any{evil + "0": []string{evil}}, "scenario": map[string]any{evil + "1": []string{evil}, "503 then 200": []string{evil}}}}
	}
	for _, file := range []string{"careless.json", "guard/wrong.json"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			pages := pagesOf(t, change(t, file, edit))
			for _, fault := range faults(t, pages) {
				t.Error(fault)
			}
			seen := 0
			for name, page := range pages {
				if !regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*\.html$`).MatchString(name) {
					t.Errorf("the name of a file is %q", name)
				}
				if bytes.ContainsAny(page, "\u202e\x1b") {
					t.Errorf("%s has characters that hide or reverse text", name)
				}
				seen += bytes.Count(page, []byte("alert(1)"))
			}
			if seen < 10 {
				t.Errorf("the text is on the pages %d times, want more", seen)
			}
		})
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	names := []string{"curl", "Curl", "got.mjs", "a b", "a-b", "a  b", "..", ".", "", "/", "日本", "日", "con", strings.Repeat("a", 60), strings.Repeat("a", 61), strings.Repeat("a", 62), "a\x00b", "-a", "a-"}
	seen := make(map[string]string)
	for _, name := range names {
		got := safe(name)
		if other, twice := seen[got]; twice {
			t.Errorf("safe(%q) = safe(%q) = %q", name, other, got)
		}
		seen[got] = name
		if !regexp.MustCompile(`^[a-z0-9.-]{1,60}$`).MatchString(got) {
			t.Errorf("safe(%q) = %q", name, got)
		}
	}
	if got := safe("got.mjs"); got != "got.mjs" {
		t.Errorf("safe(got.mjs) = %q, want it unchanged", got)
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		word string
		want string
	}{
		{"a path", "./a-b/c.d", "./a-b/c.d"},
		{"an option", "--retry=3", "--retry=3"},
		{"placeholders", "{url}", "{url}"},
		{"a placeholder in a word", "out={out}", "out={out}"},
		{"other braces", "{a,b}", "'{a,b}'"},
		{"a space", "a b", "'a b'"},
		{"nothing", "", "''"},
		{"a quote", "a'b", `'a'\''b'`},
		{"a command", "$(id);`id`", "'$(id);`id`'"},
		{"a tilde", "~/x", "'~/x'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := shell([]string{"x", tt.word}); got != "x "+tt.want {
				t.Errorf("shell(x, %q) = %s, want x %s", tt.word, got, tt.want)
			}
		})
	}
}

// TestRules checks that the page of the rules has their text, and no Markdown.
func TestRules(t *testing.T) {
	t.Parallel()
	page := pagesOf(t, fixtures)["rules.html"]
	texts := make(map[string]string)
	for _, e := range elements(t, page) {
		if id := attribute(e, "id"); e.Data == "section" && id != "" {
			texts[id] = textOf(e)
		}
		if e.Data == "p" || e.Data == "dd" {
			if text := textOf(e); strings.Contains(text, "**") || strings.Contains(text, "](") || strings.Contains(text, "`") {
				t.Errorf("Markdown is left in %q", text)
			}
		}
	}
	for id, part := range map[string]string{
		"N2": "N2 section 3, Classification The connection was refused: transient, retried. what happened connection refused error class CONNECT_REFUSED",
		"B2": "A client that delivers nothing before a body is complete starts again at the first byte, as any retry does.",
		"I1": "Decision. Idempotent methods must be retried as their class says.",
	} {
		if !strings.Contains(texts[id], part) {
			t.Errorf("rule %s is %q, want %q in it", id, texts[id], part)
		}
	}
}

// TestBuild checks that a page of an earlier build, which nothing leads to, is not left behind.
func TestBuild(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "new")
	for range 2 {
		if err := build(fixtures, specFile, to); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(slices.Collect(maps.Keys(pagesOf(t, fixtures)))); len(files) != want {
		t.Errorf("%d files, want %d", len(files), want)
	}
	if err := os.WriteFile(filepath.Join(to, "client-old.html"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := build(fixtures, specFile, to); err == nil || !strings.Contains(fmt.Sprint(err), "client-old.html is no page of these records") {
		t.Errorf("error %v, want one about client-old.html", err)
	}
}
