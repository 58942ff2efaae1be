package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// page is the text of a page and the outcome of its fetch. It is not changed.
type page struct {
	text    string
	chars   int             // code points in text
	says    string          // about the page, in the words of the tool
	caveats string          // sentences of the tool
	about   string          // the URL, the title and the type, as the origin wrote them
	outcome json.RawMessage // an object
}

func newPage(text, says, caveats, about string, outcome json.RawMessage) *page {
	return &page{text, utf8.RuneCountInString(text), says, caveats, about, outcome}
}

// bytes returns the memory of a page.
func (p *page) bytes() int64 {
	return int64(len(p.text) + len(p.says) + len(p.caveats) + len(p.about) + len(p.outcome))
}

// cut returns the characters from start to end, without end.
func (p *page) cut(start, end int) string {
	if p.chars == len(p.text) { // ASCII
		return p.text[start:end]
	}
	from := offset(p.text, start)
	return p.text[from : from+offset(p.text[from:], end-start)]
}

// offset returns the position of the character with number n.
func offset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// source says where the text of a window comes from.
type source string

const (
	fetched      source = "fetched"       // now, for the first window
	kept         source = "kept"          // earlier, for a window before
	fetchedAgain source = "fetched_again" // now, because the page of the earlier windows is not kept
)

// window is the part of the structured content about the text.
type window struct {
	Source source `json:"source"`
	Start  int    `json:"start_index"`
	End    int    `json:"end_index"`
	Next   *int   `json:"next_start_index,omitempty"`
	Length int    `json:"length"`
}

// windowSchema describes window.
var windowSchema = object{
	"type":        "object",
	"description": "The part of the text that this result has. Indexes count characters.",
	"properties": object{
		"source":           object{"type": "string", "enum": []source{fetched, kept, fetchedAgain}},
		"start_index":      object{"type": "integer"},
		"end_index":        object{"type": "integer", "description": "Index after the last character."},
		"next_start_index": object{"type": "integer", "description": "start_index of the next window. Unset at the end of the text."},
		"length":           object{"type": "integer", "description": "Number of characters of the whole text."},
	},
	"required": []string{"source", "start_index", "end_index", "length"},
}

// result returns the characters from start, at most length of them, and what there is to say about the page.
func (p *page) result(start, length int, from source) *sdk.CallToolResult {
	first := min(start, p.chars)
	w := window{Source: from, Start: first, End: min(first+length, p.chars), Length: p.chars}
	says := p.says
	switch {
	case p.chars == 0:
		says += "."
	case start >= p.chars:
		says += fmt.Sprintf(". start_index is %d, and the text has %d characters: there is no more.", start, p.chars)
	default:
		says += fmt.Sprintf(", characters %d to %d of %d.", w.Start, w.End, p.chars)
	}
	if w.End < p.chars {
		w.Next = &w.End
		says += fmt.Sprintf(" For more, call fetch with start_index %d.", w.End)
	}
	says += p.caveats
	if from == fetchedAgain {
		says += " The page was fetched again for this window, and may have changed since an earlier one."
	}
	return &sdk.CallToolResult{Content: fromOrigin(says, p.about, p.cut(w.Start, w.End)), StructuredContent: p.structured(w)}
}

// structured returns the outcome with the window.
func (p *page) structured(w window) json.RawMessage {
	text, err := json.Marshal(w)
	if err != nil { // it has only numbers and a constant
		return p.outcome
	}
	return json.RawMessage(`{"window":` + string(text) + "," + strings.TrimPrefix(string(p.outcome), "{"))
}
