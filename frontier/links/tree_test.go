package links_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/test/must"
)

// TestTreeConstruction compares links with those of the tree that html.Parse makes, for the documents of
// html5lib's tests of tokenizers, in HTML and in SVG, and of tree construction. A link is added to each,
// at every place of a < and at the end. Only a page of frames differs: its tree has no body, and its links
// are in none.
func TestTreeConstruction(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/net").Output()
	must.Succeed(t, err)
	documents := 0
	must.Succeed(t, filepath.WalkDir(filepath.Join(strings.TrimSpace(string(dir)), "html", "testdata"), func(file string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, document := range documentsOf(t, file) {
			for _, d := range withProbes(document) {
				documents++
				if diff := compareTree(t, d); diff != "" && !strings.Contains(strings.ToLower(d), "<frameset") {
					t.Errorf("%s: %s", filepath.Base(file), diff)
				}
			}
		}
		return nil
	}))
	if documents < 50_000 {
		t.Errorf("%d documents, want more than 50,000", documents)
	}
}

// documentsOf returns the documents of a file of html5lib's tests.
func documentsOf(t *testing.T, file string) (documents []string) {
	t.Helper()
	if extension := filepath.Ext(file); extension != ".dat" && extension != ".test" {
		return nil
	}
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	if filepath.Ext(file) == ".test" {
		var tokenizer struct {
			Tests []struct {
				Input string `json:"input"`
			} `json:"tests"`
		}
		must.Succeed(t, json.Unmarshal(text, &tokenizer))
		for _, test := range tokenizer.Tests {
			documents = append(documents, test.Input, "<svg>"+test.Input)
		}
		return documents
	}
	for test := range strings.SplitSeq("\n"+string(text), "\n#data\n") {
		document, rest, _ := strings.Cut(test, "\n#errors\n")
		if !strings.Contains(rest, "#document-fragment\n") {
			documents = append(documents, document)
		}
	}
	return documents
}

func withProbes(document string) (documents []string) {
	for i := range len(document) + 1 {
		if i == len(document) || document[i] == '<' {
			for _, probe := range []string{"<link rel=next href=/probe>", "<a href=/probe>x</a>"} {
				documents = append(documents, document[:i]+probe+document[i:])
			}
		}
	}
	return documents
}

// TestRandomTrees compares the links of random documents with those of their trees. The few that differ
// have svg or math without an end, and one of these in it:
//   - an end tag of an unknown element around it, which does not end it here
//   - an end tag of an element that another tag has closed, or that is not in scope
//   - a template: html.Parse ignores what follows it
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same documents in each run
	var different []string
	for range 4000 {
		if diff := compareTree(t, randomDocument(random)); diff != "" {
			different = append(different, diff)
		}
	}
	if len(different) > 10 {
		t.Errorf("%d documents differ, want at most 10:\n%s", len(different), strings.Join(different, "\n"))
	}
}

func randomDocument(random *rand.Rand) string {
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	tags := strings.Fields(`p div span b i a td tr table li ul h1 button form option br img desc title style script textarea g path
		foreignobject mi mo mtext annotation-xml mglyph svg math iframe noscript template object font xmp noembed svg math svg title desc foreignobject style a g`)
	attributes := []string{"", "", "", "", " x", ` x="<a href=/no>"`, " encoding=text/html", " color=red", " href=/b", " xlink:href=/c", ` href='/d?a&amp;b'`}
	ends := []string{">", ">", ">", ">", "/>", "/>", " / >", ""}
	var b strings.Builder
	for i := range 1 + random.IntN(40) {
		switch random.IntN(9) {
		case 0, 1, 2:
			b.WriteString("<" + pick(tags) + pick(attributes) + pick(ends))
		case 3, 4:
			b.WriteString("</" + pick(tags) + ">")
		case 5, 6:
			fmt.Fprintf(&b, "<a href=/%d>x</a>", i)
		case 7:
			fmt.Fprintf(&b, "<link rel=next href=/%d>", i)
		case 8:
			b.WriteString(pick([]string{"text &lt;a&gt; &", "<!-- <a href=/no> -->", "<![CDATA[<a href=/no>]]>", "<!x>", "<", "]]>", "<!-->", "<?x?>", "</>"}))
		}
	}
	return b.String()
}

// compareTree returns what differs between the links of a document and those of its tree.
func compareTree(t *testing.T, document string) string {
	t.Helper()
	root, err := html.ParseWithOptions(strings.NewReader(document), html.ParseOptionEnableScripting(false))
	must.Succeed(t, err)
	base, err := normal.NewBase(page)
	must.Succeed(t, err)
	want := make(map[string]bool)
	for node := range root.Descendants() {
		if link, ok := linkOf(node); ok {
			if u, err := base.Resolve(link); err == nil {
				want[u] = true
			}
		}
	}
	got, err := links.Read(strings.NewReader(document), links.Config{URL: page})
	must.Succeed(t, err)
	slices.Sort(got.Links)
	if sorted := slices.Sorted(maps.Keys(want)); !slices.Equal(sorted, got.Links) {
		return fmt.Sprintf("%q:\nlinks %q\ntree  %q", document, got.Links, sorted)
	}
	return ""
}

// linkOf returns the reference of an element.
func linkOf(node *html.Node) (string, bool) {
	for above := node.Parent; above != nil; above = above.Parent {
		if above.Data == "template" && above.Namespace == "" {
			return "", false
		}
	}
	attribute := func(namespace, key string) (string, bool) {
		for _, a := range node.Attr {
			if a.Namespace == namespace && a.Key == key {
				return a.Val, true
			}
		}
		return "", false
	}
	switch node.Namespace + " " + node.Data {
	case " a", " area", " link":
		return attribute("", "href")
	case "svg a":
		if value, ok := attribute("", "href"); ok {
			return value, ok
		}
		return attribute("xlink", "href")
	case " iframe", " frame", " embed":
		return attribute("", "src")
	case " object":
		return attribute("", "data")
	}
	return "", false
}
