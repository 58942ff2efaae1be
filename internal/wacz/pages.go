package wacz

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"fetchd/internal/jsontext"
	"fetchd/warc"
)

// Page is what a crawl knows about a URL. It becomes a page of the package if the files have an HTML
// response of it.
type Page struct {
	ID        int64 // the order in which URLs were added
	URL       string
	Title     string
	Depth     int
	Seed      bool
	Requisite bool // it belongs to other pages, and is none
}

// pages joins what is known about URLs with their captures.
type pages struct{ sorter sorter }

const (
	kindKnown   = "1"
	kindCapture = "2"
)

// know adds a URL of the crawl.
func (p *pages) know(page Page) error {
	text, err := json.Marshal(page)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return p.sorter.add(strconv.Quote(warc.EscapeURI(page.URL)) + "\t" + kindKnown + string(text))
}

// capture adds a capture of the index if it may be that of a page.
func (p *pages) capture(c *capture) error {
	e := &c.entry
	if e.Status != "200" || e.Method != "" && e.Method != "GET" || e.MIME != "text/html" && e.MIME != "application/xhtml+xml" {
		return nil
	}
	return p.sorter.add(strconv.Quote(e.URL) + "\t" + kindCapture + c.time)
}

// pageLine is a line of a list of pages.
type pageLine struct {
	URL   string    `json:"url"`
	Time  time.Time `json:"ts"`
	Title string    `json:"title,omitempty"`
	Depth *int      `json:"depth,omitempty"` // nil if it is not known
	Seed  bool      `json:"seed,omitempty"`

	page Page
}

// each calls f for each page in the order of URLs, with the time of its last capture.
func (p *pages) each(f func(pageLine) error) error {
	last, line := "", pageLine{}
	end := func() error {
		if line.Time.IsZero() || line.page.Requisite {
			return nil
		}
		return f(line)
	}
	err := p.sorter.each(func(text string) error {
		quoted, value, _ := strings.Cut(text, "\t")
		if quoted != last {
			if err := end(); err != nil {
				return err
			}
			last, line = quoted, pageLine{}
		}
		var err error
		if value[:1] == kindCapture {
			line.URL, _ = strconv.Unquote(quoted) // it was quoted
			line.Time, err = time.Parse(timestamp, value[1:])
			return err
		}
		if err := json.Unmarshal([]byte(value[1:]), &line.page); err != nil {
			return fmt.Errorf("page: %w", err)
		}
		line.Title, line.Depth, line.Seed = line.page.Title, &line.page.Depth, line.page.Seed
		return nil
	})
	if err != nil {
		return err
	}
	return end()
}

// pageHeader is the first line of a list of pages.
type pageHeader struct {
	Format string `json:"format"`
	ID     string `json:"id"`
	Title  string `json:"title"`
}

const pagesFormat = "json-pages-1.0"

// write writes the list of the pages that are seeds or not.
func (p *pages) write(out io.Writer, h pageHeader, seeds bool) error {
	lines := jsontext.NewEncoder(out)
	if err := lines.Encode(h); err != nil {
		return err
	}
	return p.each(func(line pageLine) error {
		if line.Seed != seeds {
			return nil
		}
		return lines.Encode(line)
	})
}
