package reader

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fetchd/fetch/markdown"
	"fetchd/internal/sniff"
	"fetchd/test/need"
)

// page is a page of a data set, with what its text should be.
type page struct {
	url, kind, source string
	want              string
	without           []string // boilerplate
}

// figures are the sums of the measures of pages.
type figures struct {
	pages                 int
	f1, precision, recall float64
	boilerplate, kept     int // snippets
	marked, empty         int // texts that are those of Marked, and empty ones
}

// wordPattern matches what both data sets count as a word.
var wordPattern = regexp.MustCompile(`[\pL\pN_]+`)

// counted returns how often each run of n words occurs.
func counted(text string, n int) map[string]int {
	found := wordPattern.FindAllString(text, -1)
	counts := make(map[string]int)
	for i := 0; i+n <= len(found) || i == 0 && len(found) > 0; i++ {
		counts[strings.Join(found[i:min(i+n, len(found))], " ")]++
	}
	return counts
}

// compare returns which share of got is wanted, and which share of want is there.
func compare(got, want map[string]int) (precision, recall float64) {
	common, all, wanted := 0, 0, 0
	for word, n := range got {
		all += n
		common += min(n, want[word])
	}
	for _, n := range want {
		wanted += n
	}
	switch {
	case all == 0 && wanted == 0:
		return 1, 1
	case common == 0:
		return 0, 0
	}
	return float64(common) / float64(all), float64(common) / float64(wanted)
}

func mean(p, r float64) float64 {
	if p+r == 0 {
		return 0
	}
	return 2 * p * r / (p + r)
}

// target matches the target of a link, and escaped a character that Markdown escapes.
var (
	target  = regexp.MustCompile(`\]\((?:[^()\s]|\([^()\s]*\))*(?: +"[^"]*")?\)`)
	escaped = regexp.MustCompile(`\\([[:punct:]])`)
)

// plain returns the words of Markdown, without the targets of links.
func plain(text string) string {
	return escaped.ReplaceAllString(target.ReplaceAllString(text, "]"), "$1")
}

// squeezed returns a text in small letters, and with single spaces.
func squeezed(text string) string {
	return strings.Join(strings.Fields(strings.ToLower(text)), " ")
}

// read returns the source of a page.
func read(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	text, _, _ := sniff.Text("text/html", body, 64<<20)
	return text
}

func decode(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func aeb(t *testing.T, folder string) (pages []page) {
	var truth map[string]struct{ ArticleBody, URL string }
	decode(t, filepath.Join(folder, "ground-truth.json"), &truth)
	for name, p := range truth {
		pages = append(pages, page{p.URL, "article", read(t, filepath.Join(folder, "html", name+".html.gz")), p.ArticleBody, nil})
	}
	return pages
}

func wcxb(t *testing.T, folder string) (pages []page) {
	files, err := filepath.Glob(filepath.Join(folder, "ground-truth", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files", folder)
	}
	for _, file := range files {
		var p struct {
			URL      string
			Internal struct {
				PageType struct{ Primary string } `json:"page_type"`
			} `json:"_internal"`
			Truth struct {
				Main    string `json:"main_content"`
				Without []string
			} `json:"ground_truth"`
		}
		decode(t, file, &p)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		pages = append(pages, page{p.URL, p.Internal.PageType.Primary, read(t, filepath.Join(folder, "html", name+".html.gz")), p.Truth.Main, p.Truth.Without})
	}
	return pages
}

// add measures the text of a page.
func (f *figures) add(p page, got markdown.Page, n int) {
	f.pages++
	text, want := plain(got.Text), p.want
	if n == 1 { // WCXB compares small letters
		text, want = strings.ToLower(text), strings.ToLower(want)
	}
	precision, recall := compare(counted(text, n), counted(want, n))
	f.f1 += mean(precision, recall)
	f.precision += precision
	f.recall += recall
	text = squeezed(text)
	for _, snippet := range p.without {
		f.boilerplate++
		if strings.Contains(text, squeezed(snippet)) {
			f.kept++
		}
	}
	switch {
	case got.Text == "":
		f.empty++
	case got.Fallback == markdown.ToMarked:
		f.marked++
	}
}

func (f *figures) String() string {
	n := float64(f.pages)
	return fmt.Sprintf("| %d | %.3f | %.3f | %.3f | %.3f | %.3f | %d | %d |", f.pages, f.f1/n, mean(f.precision/n, f.recall/n), f.precision/n, f.recall/n,
		float64(f.kept)/float64(max(1, f.boilerplate)), f.marked, f.empty)
}

// TestFigures prints a table: the mean F1 of the pages, as WCXB counts it, and the F1 of their mean precision and recall,
// as AEB does.
func TestFigures(t *testing.T) {
	folder := os.Getenv("READER_DATA")
	if folder == "" {
		need.Request(t, "set READER_DATA", "it measures, on data that is not here")
	}
	sets := map[string][]page{}
	if os.Getenv("READER_PART") == "test" {
		sets["wcxb test"] = wcxb(t, filepath.Join(folder, "wcxb", "test"))
	} else {
		sets["aeb"] = aeb(t, filepath.Join(folder, "aeb"))
		sets["wcxb dev"] = wcxb(t, filepath.Join(folder, "wcxb", "dev"))
	}
	t.Log("| set, content, type | pages | F1 | F1 of means | precision | recall | boilerplate kept | to marked | empty |")
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		n := 1
		if name == "aeb" {
			n = 4
		}
		for _, c := range []markdown.Content{markdown.Marked, markdown.Article} {
			sums := sum(t, sets[name], c, n)
			for _, kind := range slices.Sorted(maps.Keys(sums)) {
				t.Logf("| %s, %s, %s %v", name, map[markdown.Content]string{markdown.Marked: "marked", markdown.Article: "article"}[c], kind, sums[kind])
			}
		}
	}
}

// sum converts pages, and returns their figures by type. n is the length of the runs of words that are compared.
func sum(t *testing.T, pages []page, c markdown.Content, n int) map[string]*figures {
	sums := make(map[string]*figures)
	for _, p := range pages {
		got, err := markdown.From(p.source, p.url, c)
		if err != nil {
			t.Logf("%s: %v", p.url, err)
		}
		for _, kind := range []string{"all", p.kind} {
			if sums[kind] == nil {
				sums[kind] = new(figures)
			}
			sums[kind].add(p, got, n)
		}
	}
	return sums
}

// TestPicture checks that docs/text.png shows the text of its page. testdata/picture.html says how it is made.
func TestPicture(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/page.html")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/page.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := markdown.From(string(source), "https://a.example/ferries", markdown.Marked); got.Text != string(want) || err != nil {
		t.Errorf("the text is %s, %v; want testdata/page.txt", got.Text, err)
	}
}
