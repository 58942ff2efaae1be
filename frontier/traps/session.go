package traps

import "strings"

const (
	idLength  = 32
	aspLength = 24
)

// sessionNames are parameters whose value is a session id if it has 32 letters and digits.
var sessionNames = []string{"jsessionid", "phpsessid", "sid", "sessid", "sessionid", "session_id"}

// Key returns the text by which a URL is known: the URL without session ids. Most have none, and are returned as they are.
// The names of the parameters are those of Heritrix, in any case.
func Key(url string) string {
	head, query, hasQuery := strings.Cut(url, "?")
	path := withoutPathID(head)
	rest := query
	if hasQuery {
		rest = withoutIDs(query)
	}
	switch {
	case len(path) == len(head) && len(rest) == len(query):
		return url
	case rest == "":
		return path
	}
	return path + "?" + rest
}

// withoutPathID removes ";jsessionid=" and its value from a path.
func withoutPathID(path string) string {
	for at := strings.IndexByte(path, ';'); at >= 0; {
		parameter := path[at+1:]
		if end := strings.IndexAny(parameter, ";/"); end >= 0 {
			parameter = parameter[:end]
		}
		if isSession(parameter) {
			return path[:at] + path[at+1+len(parameter):]
		}
		next := strings.IndexByte(path[at+1:], ';')
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return path
}

// withoutIDs removes the session ids of a query. It returns the same text if it has none.
func withoutIDs(query string) string {
	var out []byte // up to the current parameter, once something is left out
	left := false
	for at := 0; at <= len(query); {
		end := endOf(query, at)
		parameter, next := query[at:end], end+1
		drop := isSession(parameter) || isASP(parameter)
		if !drop && hasName(parameter, "cfid") && end < len(query) {
			if after := endOf(query, next); hasName(query[next:after], "cftoken") {
				drop, next = true, after+1
			}
		}
		switch {
		case drop && !left:
			left, out = true, append(out, strings.TrimSuffix(query[:at], "&")...)
		case drop:
		case left:
			if len(out) > 0 {
				out = append(out, '&')
			}
			out = append(out, parameter...)
		}
		at = next
	}
	if !left {
		return query
	}
	return string(out)
}

// endOf returns where the parameter ends that begins at a place.
func endOf(query string, at int) int {
	if n := strings.IndexByte(query[at:], '&'); n >= 0 {
		return at + n
	}
	return len(query)
}

// hasName reports whether a parameter has a name, in any case, and a value.
func hasName(parameter, name string) bool {
	return len(parameter) > len(name)+1 && parameter[len(name)] == '=' && strings.EqualFold(parameter[:len(name)], name)
}

func isSession(parameter string) bool {
	at := len(parameter) - idLength - 1
	if at < 1 || parameter[at] != '=' {
		return false
	}
	for _, name := range sessionNames {
		if at == len(name) && strings.EqualFold(parameter[:at], name) {
			return isAlphanumeric(parameter[at+1:], true)
		}
	}
	return false
}

// isASP reports whether a parameter is ASPSESSIONID with 8 letters, and 24 letters as its value.
func isASP(parameter string) bool {
	const name, suffix = "aspsessionid", 8
	return len(parameter) == len(name)+suffix+1+aspLength && strings.EqualFold(parameter[:len(name)], name) &&
		parameter[len(name)+suffix] == '=' && isAlphanumeric(parameter[len(name):len(name)+suffix], false) && isAlphanumeric(parameter[len(name)+suffix+1:], false)
}

func isAlphanumeric(s string, digits bool) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (!digits || !isDigit(s[i])) {
			return false
		}
	}
	return true
}
