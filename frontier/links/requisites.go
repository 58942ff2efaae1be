package links

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"fetchd/frontier/normal"
	"fetchd/internal/sniff"
)

// MaxRequisites is how many requisites of a document are found.
const MaxRequisites = 1000

// Requisite is a URL that a document needs to be shown, in its normal form.
type Requisite struct {
	URL string
	// Searched means that it may need more itself: it is a style sheet, a frame or a manifest.
	Searched bool
}

// purpose is what a reference is for.
type purpose byte

const (
	link     purpose = iota
	asset            // a requisite that needs nothing itself
	searched         // another requisite
)

// reference is one that waits for the base.
type reference struct {
	text    string
	purpose purpose
}

// need adds a reference to a requisite.
func (s *search) need(text string, search bool) {
	if text = strings.TrimSpace(text); text == "" || text[0] == '#' || len(text) > normal.MaxURLBytes || isData(text) || s.templates > 0 {
		return
	}
	r := reference{text, asset}
	if search {
		r.purpose = searched
	}
	s.wait(r)
}

// isData reports whether a reference has its content in itself.
func isData(text string) bool { return len(text) >= 5 && strings.EqualFold(text[:5], "data:") }

// maxTitle is how many bytes of a title are kept.
const maxTitle = 500

// content reads the text of an element.
func (s *search) content(z *html.Tokenizer) {
	switch s.text {
	case "style":
		s.css(slices.Clip(z.Raw())) // the lexer writes behind the text if it can
	case "title":
		if s.page.Title == "" {
			title := strings.Join(strings.Fields(string(z.Text())), " ")
			s.page.Title, _ = sniff.Shorten(title, maxTitle)
		}
	}
}

// setRequisite reads an attribute of which only requisites are known.
func (a *attributes) setRequisite(key string, value []byte) {
	switch key {
	case "as":
		set(&a.as, value)
	case "style":
		set(&a.style, value)
	case "background":
		set(&a.background, value)
	case "poster":
		set(&a.poster, value)
	case "lowsrc":
		set(&a.lowsrc, value)
	case "srcset":
		set(&a.srcset, value)
	case "imagesrcset":
		set(&a.imagesrcset, value)
	case "data-src", "data-original", "data-lazy", "data-lazy-src", "data-full-src":
		a.lazy = append(a.lazy, string(value))
	case "data-srcset", "data-lazy-srcset":
		a.lazySets = append(a.lazySets, string(value))
	}
}

// addRequisite adds a URL. One that is found twice is searched if one of them is.
func (s *search) addRequisite(u string, search bool) {
	if at, twice := s.requisites[u]; twice {
		s.page.Requisites[at].Searched = s.page.Requisites[at].Searched || search
		return
	}
	if len(s.page.Requisites) == MaxRequisites || s.bytes+len(u) > s.config.Limits.LinkBytes {
		s.page.OverRequisites++
		return
	}
	if s.requisites == nil {
		s.requisites = make(map[string]int)
	}
	s.requisites[u] = len(s.page.Requisites)
	s.bytes += len(u)
	s.page.Requisites = append(s.page.Requisites, Requisite{u, search})
}

// needs adds the requisites of a tag.
func (s *search) needs(name string, a *attributes) {
	if a.style != "" {
		s.css([]byte(a.style))
	}
	s.need(a.background, false)
	switch name {
	case "iframe", "frame", "embed":
		s.need(a.src, true)
	case "object":
		s.need(a.data, true)
	case "img", "script", "audio", "video", "source", "track":
		s.need(a.src, false)
	case "input":
		if strings.EqualFold(a.media, "image") {
			s.need(a.src, false)
		}
	case "image", "use", "feimage": // of SVG
		s.need(cmp.Or(a.href, a.xlink), false)
	case "link":
		s.needsOfLink(a)
	}
	switch name {
	case "script": // that of SVG
		s.need(cmp.Or(a.href, a.xlink), false)
	case "img", "source":
		s.need(a.lowsrc, false)
		s.srcset(a.srcset)
	case "video":
		s.need(a.poster, false)
	}
	for _, text := range a.lazy {
		s.need(text, name == "iframe")
	}
	for _, text := range a.lazySets {
		s.srcset(text)
	}
}

func (s *search) needsOfLink(a *attributes) {
	for rel := range strings.FieldsSeq(a.rel) {
		switch rel = strings.ToLower(rel); rel {
		case "stylesheet", "manifest":
			s.need(a.href, true)
		case "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon", "modulepreload":
			s.need(a.href, false)
		case "preload":
			s.need(a.href, strings.EqualFold(a.as, "style"))
			s.srcset(a.imagesrcset)
		}
	}
}

// srcset adds all candidates of a srcset: HTML standard, parse a srcset attribute.
func (s *search) srcset(text string) {
	const space = " \t\r\n\f"
	for !s.ended() {
		text = strings.TrimLeft(text, space+",")
		if text == "" {
			return
		}
		end := strings.IndexAny(text, space)
		if end < 0 {
			end = len(text)
		}
		candidate := strings.TrimRight(text[:end], ",")
		whole := len(candidate) == end
		s.need(candidate, false)
		if text = text[end:]; !whole {
			continue
		}
		depth, next := 0, len(text)
	descriptors:
		for i := range len(text) {
			switch text[i] {
			case '(':
				depth++
			case ')':
				depth = max(0, depth-1)
			case ',':
				if depth == 0 {
					next = i
					break descriptors
				}
			}
		}
		text = text[next:]
	}
}

// maxManifest limits a manifest of a web application.
const maxManifest = 1 << 20

// documentKind is how a document is read.
type documentKind int

const (
	other documentKind = iota
	page
	sheet
	manifest
)

// kindOf returns the kind of a document by its type, or by its name if it has none that says something.
func kindOf(contentType, url string) documentKind {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); media {
	case "text/html", "application/xhtml+xml", "image/svg+xml":
		return page
	case "text/css":
		return sheet
	case "application/manifest+json", "application/json":
		return manifest
	case "", "text/plain", "application/octet-stream":
		path, _, _ := strings.Cut(url, "?")
		switch {
		case strings.HasSuffix(path, ".css"):
			return sheet
		case strings.HasSuffix(path, ".webmanifest"):
			return manifest
		case media == "":
			return page
		}
	}
	return other
}

// HasRequisites reports whether a document of a type, at a URL, is one of which requisites can be found.
func HasRequisites(contentType, url string) bool { return kindOf(contentType, url) != other }

// readManifest adds the images of a manifest.
func (s *search) readManifest(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil || !s.spend(8*len(text)) {
		return err
	}
	type image struct {
		Src string `json:"src"`
	}
	var manifest struct {
		Icons       []image `json:"icons"`
		Screenshots []image `json:"screenshots"`
		Shortcuts   []struct {
			Icons []image `json:"icons"`
		} `json:"shortcuts"`
	}
	_ = json.Unmarshal(text, &manifest) // one that is not valid has none
	images := append(manifest.Icons, manifest.Screenshots...)
	for _, s := range manifest.Shortcuts {
		images = append(images, s.Icons...)
	}
	for _, i := range images {
		s.need(i.Src, false)
	}
	s.flush()
	return nil
}
