package normal

import "net/url"

// HostOf returns the host of a URL as politeness counts it, or an empty string if the URL is not
// valid.
func HostOf(raw string) string {
	u, err := NormalizeURL(raw)
	if err != nil {
		return ""
	}
	host, err := ExtractHost(u)
	if err != nil {
		return ""
	}
	return host
}

// OriginOf returns scheme, host and port of a URL in its normal form, and its path with the query,
// as robots.txt uses them.
func OriginOf(normalised string) (origin, pathAndQuery string) {
	u, err := url.Parse(normalised)
	if err != nil {
		return "", ""
	}
	return u.Scheme + "://" + u.Host, u.RequestURI()
}
