package wacz

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Key returns the key by which an index is sorted: the canonical URL in sort-friendly order
// (SURT), such as "org,example)/path?a=1". Replay programs compute the key of the URL that
// somebody looks for and search for it, so it must be the one that they compute. It is that of
// pywb. IPv4 addresses are reversed like names for the same reason.
//
// The key consists of printable ASCII characters without spaces, whatever raw contains.
func Key(raw string) string {
	raw = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(strings.Trim(raw, " \t\r\n\v\f"))
	raw, _, _ = strings.Cut(raw, "#")
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return lowerEscape(raw)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if query = canonicalQuery(query); query != "" {
		query = "?" + query
	}
	authority, path, ok := "", rest, false
	if after, isURL := strings.CutPrefix(rest, "//"); isURL {
		end := strings.IndexByte(after+"/", '/')
		authority, path, ok = after[:end], after[end:], end > 0
	}
	if !ok { // such as urn: or mailto:
		return lowerEscape(scheme) + ":" + strings.TrimSuffix(lowerEscape(unescape(path)), "/") + query
	}
	host, ok := canonicalHost(strings.ToLower(scheme), authority)
	if !ok {
		return lowerEscape(raw)
	}
	return host + ")" + canonicalPath(path) + query
}

// wwwPrefix is removed from host names.
var wwwPrefix = regexp.MustCompile(`^www[0-9]*\.`)

// canonicalHost returns the reversed host with a port other than the default one. It reports false
// if the port is not a number.
func canonicalHost(scheme, authority string) (string, bool) {
	host, port, _ := strings.Cut(authority[strings.LastIndexByte(authority, '@')+1:], ":")
	if _, literal, ok := strings.Cut(authority, "["); ok {
		host, port, _ = strings.Cut(literal, "]")
		port = strings.TrimPrefix(port, ":")
	}
	host = unescape(host)
	if strings.IndexFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		if ascii, err := idna.Lookup.ToASCII(host); err == nil {
			host = ascii
		}
	}
	host = strings.Trim(strings.ReplaceAll(host, "..", "."), ".")
	host = wwwPrefix.ReplaceAllLiteralString(lowerEscape(host), "")
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	host = strings.Join(labels, ",")
	if port == "" {
		return host, true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if n != 0 && !(scheme == "http" && n == 80) && !(scheme == "https" && n == 443) {
		host = fmt.Sprintf("%s:%d", host, n)
	}
	return host, err == nil
}

// sessionDirectories are directories of ASP.NET that contain a session. The first group is removed.
var sessionDirectories = []*regexp.Regexp{
	regexp.MustCompile(`/(\((?:[a-z]\([0-9a-z]{24}\))+\)/)[^?]+\.aspx`),
	regexp.MustCompile(`/(\([0-9a-z]{24}\)/)[^?]+\.aspx`),
}

// canonicalPath returns the path in lower case, with minimal escapes, without empty segments, dot
// segments, sessions and a final slash.
func canonicalPath(path string) string {
	var kept []string
	segments := strings.Split(strings.TrimPrefix(unescape(path), "/"), "/")
	for _, s := range segments {
		switch {
		case s == ".":
		case s == ".." && len(kept) > 0:
			kept = kept[:len(kept)-1]
		default:
			kept = append(kept, s)
		}
	}
	var b strings.Builder
	for i, s := range kept {
		if s != "" || i == len(kept)-1 {
			b.WriteString("/" + s)
		}
	}
	path = lowerEscape(b.String())
	for _, r := range sessionDirectories {
		if all := r.FindAllStringSubmatchIndex(path, -1); all != nil {
			last := all[len(all)-1]
			path = path[:last[2]] + path[last[3]:]
		}
	}
	return "/" + strings.TrimPrefix(strings.TrimSuffix(path, "/"), "/")
}

// sessionArguments are arguments of queries that contain a session.
var sessionArguments = []*regexp.Regexp{
	regexp.MustCompile(`jsessionid=[0-9a-z]{32}(?:&|$)`),
	regexp.MustCompile(`phpsessid=[0-9a-z]{32}(?:&|$)`),
	regexp.MustCompile(`sid=[0-9a-z]{32}(?:&|$)`),
	regexp.MustCompile(`aspsessionid[a-z]{8}=[a-z]{24}(?:&|$)`),
	regexp.MustCompile(`cfid=[^&]+&cftoken=[^&]+(?:&|$)`),
}

// canonicalQuery returns the query in lower case, with minimal escapes, without sessions. Its
// arguments are sorted.
func canonicalQuery(query string) string {
	query = lowerEscape(unescape(query))
	for _, r := range sessionArguments {
		if all := r.FindAllStringIndex(query, -1); all != nil {
			last := all[len(all)-1]
			query = query[:last[0]] + query[last[1]:]
		}
	}
	arguments := strings.Split(query, "&")
	slices.SortStableFunc(arguments, func(a, b string) int {
		nameA, valueA, hasA := strings.Cut(a, "=")
		nameB, valueB, hasB := strings.Cut(b, "=")
		if hasA != hasB && nameA == nameB {
			if hasA {
				return 1
			}
			return -1
		}
		return cmp.Or(strings.Compare(nameA, nameB), strings.Compare(valueA, valueB))
	})
	return strings.Join(arguments, "&")
}

// unescape decodes percent-escapes until there are none. Escapes that decoding creates, as in
// %2541, are decoded too.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		out = append(out, s[i])
		for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
			c, err := strconv.ParseUint(string(out[n-2:]), 16, 8)
			if err != nil {
				break
			}
			out = append(out[:n-3], byte(c))
		}
	}
	return string(out)
}

// lowerEscape returns s in lower case. It escapes what is not printable ASCII, and "#", "%" and
// spaces.
func lowerEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case c > ' ' && c < 0x7f && c != '#' && c != '%':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}
