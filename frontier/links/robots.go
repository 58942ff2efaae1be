package links

import (
	"strings"

	"fetchd/frontier/robots"
)

// isAgent reports whether name is that of the crawler, compared as in robots.txt.
func isAgent(name, agent string) bool {
	token := robots.ProductToken(agent)
	return token != "" && robots.ProductToken(name) == token
}

// closes reports whether directives such as "noindex, nofollow" ask not to follow links.
func closes(directives string) bool {
	for d := range strings.SplitSeq(directives, ",") {
		switch strings.ToLower(strings.TrimSpace(d)) {
		case "nofollow", "none":
			return true
		}
	}
	return false
}

// headerCloses reports whether values of X-Robots-Tag ask the crawler not to follow links. A value is
// a list of directives, after the name of a crawler and a colon if they are for that one alone.
func headerCloses(values []string, agent string) bool {
	for _, value := range values {
		ours := true
		for d := range strings.SplitSeq(value, ",") {
			if name, rest, named := strings.Cut(d, ":"); named && !isDirective(name) {
				ours, d = isAgent(strings.TrimSpace(name), agent) || strings.TrimSpace(name) == "*", rest
			}
			if ours && closes(d) {
				return true
			}
		}
	}
	return false
}

// isDirective reports whether a name before a colon is a directive with a value, and no crawler.
func isDirective(name string) bool {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "unavailable_after", "max-snippet", "max-image-preview", "max-video-preview":
		return true
	}
	return false
}

// refresh returns the URL in the content of a meta refresh: HTML standard, shared declarative refresh
// steps.
func refresh(content string) (target string, ok bool) {
	rest := strings.TrimLeft(content, " \t\r\n\f")
	digits := strings.TrimLeft(rest, "0123456789")
	if len(digits) == len(rest) && !strings.HasPrefix(rest, ".") {
		return "", false
	}
	rest = strings.TrimLeft(digits, "0123456789.")
	if rest == "" || !strings.ContainsRune(";, \t\r\n\f", rune(rest[0])) {
		return "", false
	}
	rest = strings.TrimLeft(rest, " \t\r\n\f")
	rest = strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(rest, ";"), ","), " \t\r\n\f")
	if len(rest) >= 3 && strings.EqualFold(rest[:3], "url") {
		if value, found := strings.CutPrefix(strings.TrimLeft(rest[3:], " \t\r\n\f"), "="); found {
			rest = strings.TrimLeft(value, " \t\r\n\f")
		}
	}
	if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		quote := rest[:1]
		rest, _, _ = strings.Cut(rest[1:], quote)
	}
	return rest, rest != ""
}
