package sources_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/internal/sources"
)

func TestSourcesTable(t *testing.T) {
	root := filepath.Join("..", "..")
	table, err := os.ReadFile(filepath.Join(root, "docs", "sources.md"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("docs/sources.md is missing: it must say where each statement of the source documents went, " +
			"in a table with the columns Statement, Rule, Symbol and Test")
	}
	if err != nil {
		t.Fatal(err)
	}
	rows, err := sources.Parse(string(table))
	if err != nil {
		t.Fatalf("docs/sources.md: %v", err)
	}
	if len(rows) == 0 {
		t.Fatal("docs/sources.md: the table has no rows")
	}
	spec, err := os.ReadFile(filepath.Join(root, "docs", "spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := sources.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range sources.Check(rows, sources.Rules(string(spec)), tree) {
		t.Errorf("docs/sources.md: %s", fault)
	}
}

func TestParse(t *testing.T) {
	const header = "| Statement | Rule | Symbol | Test |\n|---|---|---|---|\n"
	tests := []struct {
		name string
		text string
		want []sources.Row
	}{
		{
			"one of each",
			header + "| 5xx is retried | H1 | `classify.Decide` | `classify.TestDecide` |",
			[]sources.Row{{3, "5xx is retried", []string{"H1"}, []string{"classify.Decide"}, []string{"classify.TestDecide"}}},
		},
		{
			"several of each",
			header + "| a | H1, §9 | `a.B`, `a.(*C).D` | `a.TestB/x, y`, a.TestD |",
			[]sources.Row{{3, "a", []string{"H1", "§9"}, []string{"a.B", "a.(*C).D"}, []string{"a.TestB/x, y", "a.TestD"}}},
		},
		{
			"dashes name nothing",
			header + "| a | H1 | – | - |",
			[]sources.Row{{3, "a", []string{"H1"}, nil, nil}},
		},
		{
			"cells that are missing",
			header + "| a |",
			[]sources.Row{{3, "a", nil, nil, nil}},
		},
		{
			"an escaped bar",
			header + `| a \| b | H1 | – | – |`,
			[]sources.Row{{3, "a | b", []string{"H1"}, nil, nil}},
		},
		{
			"other columns, another order, a second table",
			"# S0\n\n| § | Test | Symbol | Rule | Statement |\n|---|---|---|---|---|\n| 1 | t | s | r | a |\n\n" +
				"| Word | Meaning |\n|---|---|\n| x | y |\n\n" + header + "| b | H1 | – | – |",
			[]sources.Row{
				{5, "a", []string{"r"}, []string{"s"}, []string{"t"}},
				{13, "b", []string{"H1"}, nil, nil},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sources.Parse(tt.text)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tt.text, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func TestParseWithoutTable(t *testing.T) {
	for _, text := range []string{"", "# Sources\n", "| Statement | Rule | Symbol |\n|---|---|---|\n| a | b | c |"} {
		if rows, err := sources.Parse(text); !errors.Is(err, sources.ErrNoTable) {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, rows, err, sources.ErrNoTable)
		}
	}
}

func TestRules(t *testing.T) {
	const spec = "## 3. Classification\n\nSee X1.\n\n| H1 | 500–599 |\n| # | what |\n- W2. A wait.\n- Not a rule: Y1.\n"
	want := map[string]bool{"§3": true, "H1": true, "W2": true}
	if diff := cmp.Diff(want, sources.Rules(spec)); diff != "" {
		t.Errorf("Rules(%q) (-want +got):\n%s", spec, diff)
	}
}

// fixture is a module with one of everything that a table can name.
func fixture(t *testing.T) *sources.Tree {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"go.mod": "module example\n",
		"fetch/client.go": `package fetch

type Client[T any] struct{ Limit int }
type Doer interface{ Do() error }
type Kind int

const First Kind = 1

var ErrGone, ErrLost error

func New() *Client[int] { return nil }
func (c *Client[T]) Fetch() {}
func (k Kind) String() string { return "" }
`,
		"fetch/client_test.go": `package fetch_test

import "testing"

func TestFetch(t *testing.T) { t.Run("a row", nil) }
func FuzzParse(f *testing.F) {}
func helper() {}
`,
		"conformance/origin/origin.go": "package origin\n\nfunc Serve() {}\n",
		"cmd/fetchd/main.go":           "package main\n\nfunc run() {}\n",
		"gen/fetchd/v1/fetch.go":       "package fetchdv1\n\ntype Request struct{}\n",
		"fetch/testdata/bad.go":        "not Go",
		"tools/go.mod":                 "module tools\n",
		"tools/tool.go":                "package tools\n\nfunc Tool() {}\n",
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := sources.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestHasSymbol(t *testing.T) {
	tree := fixture(t)
	tests := map[string]bool{
		"fetch.New":                true,
		"fetch.First":              true,
		"fetch.ErrLost":            true,
		"fetch.Client":             true,
		"fetch.Client.Limit":       true,
		"fetch.Client.Fetch":       true,
		"fetch.(*Client).Fetch":    true,
		"fetch.Kind.String":        true,
		"fetch.Doer.Do":            true,
		"origin.Serve":             true,
		"conformance/origin.Serve": true,
		"cmd/fetchd.run":           true,
		"fetchd.run":               true,
		"fetchdv1.Request":         true,
		"gen/fetchd/v1.Request":    true,
		"fetch.Gone":               false,
		"fetch.(*Kind).String":     false, // the receiver is no pointer
		"fetch.(*Client).Limit":    false,
		"fetch.Client.Gone":        false,
		"fetch.Fetch":              false,
		"fetch.TestFetch":          false, // a test carries out nothing
		"fetch":                    false,
		"New":                      false,
		"gone.New":                 false,
		"tools.Tool":               false, // another module
		"internal/gone.Serve":      false,
		"":                         false,
		"fetch.(*Client).Fetch ":   false,
	}
	for symbol, want := range tests {
		if got := tree.HasSymbol(symbol); got != want {
			t.Errorf("HasSymbol(%q) = %v, want %v", symbol, got, want)
		}
	}
}

func TestHasTest(t *testing.T) {
	tree := fixture(t)
	tests := map[string]bool{
		"fetch.TestFetch":       true,
		"fetch.TestFetch/a row": true,
		"fetch.FuzzParse":       true,
		"fetch.TestFetch/gone":  false,
		"fetch.TestFetch/":      false,
		"fetch.TestGone":        false,
		"fetch.TestGone/a row":  false,
		"fetch.helper":          false,
		"fetch.New":             false,
		"origin.TestFetch":      false,
		"TestFetch":             false,
		"":                      false,
	}
	for test, want := range tests {
		if got := tree.HasTest(test); got != want {
			t.Errorf("HasTest(%q) = %v, want %v", test, got, want)
		}
	}
}

func TestLoadReportsSourcesThatDoNotParse(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "bad.go"), []byte("not Go"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sources.Load(root); err == nil {
		t.Error("Load of a file that is not Go: no error")
	}
}

func TestCheck(t *testing.T) {
	tree, rules := fixture(t), map[string]bool{"H1": true, "§9": true, "X1": true}
	tests := []struct {
		name string
		row  string
		want []string
	}{
		{"all there", "| a | H1, §9 | fetch.New | fetch.TestFetch/a row |", nil},
		{"left to others", "| a | H1 | – | – |", nil},
		{"a rule that is missing", "| a | H2 | – | – |", []string{"line 3: the specification has no rule H2"}},
		{"a symbol that is missing", "| a | H1 | fetch.New, fetch.Gone | fetch.TestFetch |", []string{"line 3: the sources have no symbol fetch.Gone"}},
		{"a test that is missing", "| a | H1 | fetch.New | fetch.TestGone |", []string{"line 3: the sources have no test fetch.TestGone"}},
		{"a row of a test that is missing", "| a | H1 | fetch.New | fetch.TestFetch/b row |", []string{"line 3: the sources have no test fetch.TestFetch/b row"}},
		{"no rule", "| a | – | fetch.New | fetch.TestFetch |", []string{"line 3: the statement has no rule"}},
		{"no statement", "| | H1 | fetch.New | fetch.TestFetch |", []string{"line 3: the row has no statement"}},
		{"no test", "| a | H1 | fetch.New | – |", []string{"line 3: symbol and test: name both or neither"}},
		{"no symbol", "| a | H1 | – | fetch.TestFetch |", []string{"line 3: symbol and test: name both or neither"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows, err := sources.Parse(strings.Join([]string{"| Statement | Rule | Symbol | Test |", "|---|---|---|---|", tt.row, "| departs | X1 | – | – |"}, "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, sources.Check(rows, rules, tree)); diff != "" {
				t.Errorf("Check(%q) (-want +got):\n%s", tt.row, diff)
			}
		})
	}
	if got := sources.Check(nil, rules, tree); !slices.Equal(got, []string{"no row cites the departure X1"}) {
		t.Errorf("Check of no rows returned %q", got)
	}
}
