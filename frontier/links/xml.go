package links

import (
	"bytes"
	"strings"

	"golang.org/x/net/html"
)

// xml is the state of a document that is read as XML.
type xml struct {
	// prefixes are those that a tag has bound to the namespace of XHTML or SVG.
	prefixes map[string]bool
	// until is what ends a processing instruction, or the declarations in a document type, of which the
	// tokenizer has read a part.
	until string
}

const maxPrefixes = 16

// isXML reports whether a document is read as XML.
func isXML(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/xhtml+xml" || media == "image/svg+xml"
}

// skips reports whether a token is part of what is no content. To the tokenizer, which reads HTML, each
// > ends a processing instruction and a document type.
func (x *xml) skips(kind html.TokenType, raw []byte) bool {
	switch {
	case x.until != "":
		if bytes.Contains(raw, []byte(x.until)) && (kind == html.TextToken || x.until == "?>") {
			x.until = ""
		}
	case kind == html.CommentToken && bytes.HasPrefix(raw, []byte("<?")) && !bytes.HasSuffix(raw, []byte("?>")):
		x.until = "?>"
	case kind == html.DoctypeToken && bytes.Contains(raw, []byte("[")) && !bytes.Contains(raw, []byte("]")):
		x.until = "]"
	default:
		return false
	}
	return kind != html.ErrorToken
}

// name returns the name of an element of XHTML or SVG without its prefix. It is empty for another
// element. lower is the name in the tag in lower case.
func (x *xml) name(tag, lower []byte) string {
	x.bind(tag)
	prefix, local, prefixed := strings.Cut(string(lower), ":")
	switch tag = bytes.TrimLeft(tag, "</"); {
	case !bytes.HasPrefix(tag, lower):
		return "" // names have no capitals
	case prefixed && x.prefixes[prefix]:
		return local
	}
	return string(lower)
}

// bind remembers the prefixes that a tag binds. They count for the rest of the document.
func (x *xml) bind(tag []byte) {
	for len(x.prefixes) < maxPrefixes {
		_, after, ok := bytes.Cut(tag, []byte("xmlns:"))
		if !ok {
			return
		}
		tag = after
		prefix, value, _ := strings.Cut(string(after[:min(len(after), 100)]), "=")
		value = strings.TrimLeft(value, " \t\r\n\"'")
		if strings.HasPrefix(value, "http://www.w3.org/1999/xhtml") || strings.HasPrefix(value, "http://www.w3.org/2000/svg") {
			if x.prefixes == nil {
				x.prefixes = make(map[string]bool)
			}
			x.prefixes[strings.TrimRight(prefix, " \t\r\n")] = true
		}
	}
}
