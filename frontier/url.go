package frontier

import (
	"net/url"

	"fetchd/frontier/normal"
)

// hostOf is the key of politeness of a URL; empty if it is none.
func hostOf(raw string) string {
	u, err := normal.NormalizeURL(raw)
	if err != nil {
		return ""
	}
	host, err := normal.ExtractHost(u)
	if err != nil {
		return ""
	}
	return host
}

// originOf is scheme, host and port of a URL in its normal form, and the path
// with the query, as robots.txt is asked for them.
func originOf(normalised string) (origin, pathAndQuery string) {
	u, err := url.Parse(normalised)
	if err != nil {
		return "", ""
	}
	return u.Scheme + "://" + u.Host, u.RequestURI()
}
