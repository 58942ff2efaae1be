package frontier

import (
	"net/url"

	"fetchd/frontier/normal"
)

// hostOf returns the host of a URL as politeness counts it, or an empty string if the URL is not
// valid.
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

// originOf returns scheme, host and port of a URL in its normal form, and its path with the query,
// as robots.txt uses them.
func originOf(normalised string) (origin, pathAndQuery string) {
	u, err := url.Parse(normalised)
	if err != nil {
		return "", ""
	}
	return u.Scheme + "://" + u.Host, u.RequestURI()
}
