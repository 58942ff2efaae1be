package markdown

import (
	"log/slog"

	readability "codeberg.org/readeck/go-readability/v2"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The limits of the search for an article. The library starts walks at many elements, and searches up to four times
// if it finds little.
const (
	maxSteps      = 40_000_000 // of a search; see preparer.steps
	maxAgainSteps = 5_000_000  // of a page that is searched again
	enough        = 500        // characters, for which no search is repeated
)

// The share of the marked text, in percent, that an article has at least. If it has less, the page is a forum or a
// list, unless it says that it is an article.
const (
	minShare       = 50
	minStatedShare = 15
)

// findArticle returns the main text of a page, or nil if it would be too little. It changes the page. stated is true
// if the page says that it is an article.
func findArticle(doc *html.Node, steps int, stated bool) *html.Node {
	if steps > maxSteps {
		return nil
	}
	keepMain(doc)
	marked := measure(doc)
	// With a name of an author, the library does not remove the one that the page shows. It learns no title, so that
	// the heading stays too.
	for n := range doc.Descendants() {
		if n.Data == "html" {
			n.InsertBefore(&html.Node{Type: html.ElementNode, Data: "meta", Attr: []html.Attribute{{Key: "name", Val: "author"}, {Key: "content", Val: "-"}}}, n.FirstChild)
			break
		}
	}
	p := readability.NewParser()
	p.Logger = slog.New(slog.DiscardHandler)
	p.KeepClasses = true // the language of code is one
	p.DisableJSONLD = true
	p.CharThresholds = enough
	if steps > maxAgainSteps {
		p.CharThresholds = 0
	}
	found, err := p.ParseAndMutate(doc, nil)
	if err != nil || found.Node == nil {
		return nil
	}
	share := minShare
	if stated {
		share = minStatedShare
	}
	if measure(found.Node).text*100 < marked.text*share {
		return nil
	}
	for n := range found.Node.Descendants() {
		if n.DataAtom == atom.H1 { // the library made it a second one, below the title
			n.Data = "h1"
		}
	}
	return found.Node
}
