package har

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"fetchd/cmd/fetchctl/timeline"
	pb "fetchd/gen/fetchd/v1"
)

// request returns the request of hop i. The headers are those of the caller, because the
// service does not report those that it adds. They are only included while the chain has not
// left the origin of the first URL: after that the service drops some of them (rule D4), and
// does not report which.
func (w *writer) request(a *timeline.Attempt, i int) request {
	h := &a.Hops[i]
	r := request{Method: h.Method, URL: withoutFragment(h.URL), Version: version(h), Headers: []pair{}, Cookies: []pair{},
		Query: query(h.URL), HeadersSize: -1, BodySize: -1}
	original := w.options.Request
	if original == nil {
		return r
	}
	if w.elsewhere(a, i) {
		r.Comment = "unknown: the service does not report which headers it sends to another origin"
		return r
	}
	body := len(original.GetBody()) > 0 && h.Method == methodOf(original)
	r.BodySize = 0
	if body {
		r.BodySize = int64(len(original.GetBody()))
	}
	for _, line := range original.GetHeaders() {
		if body || !strings.HasPrefix(strings.ToLower(line.GetName()), "content-") {
			r.Headers = append(r.Headers, w.requestHeader(line))
			r.Cookies = append(r.Cookies, w.cookies(line)...)
		}
	}
	if body && w.options.Bodies && utf8.Valid(original.GetBody()) {
		r.Post = &post{MIME: header(original.GetHeaders(), "Content-Type"), Text: string(original.GetBody())}
	}
	return r
}

// elsewhere reports whether the chain has left the origin of the first URL at hop i. It may
// also have left it before the attempt, if that starts at a failed hop (rule I3).
func (w *writer) elsewhere(a *timeline.Attempt, i int) bool {
	for j := range w.fetch.Attempts {
		before := &w.fetch.Attempts[j]
		if before.Number == a.Number-1 && before.Decision.GetRetry().GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
			return true
		}
	}
	first := originOf(w.options.Request.GetUrl())
	return slices.ContainsFunc(a.Hops[:i+1], func(h timeline.Hop) bool { return originOf(h.URL) != first })
}

func methodOf(r *pb.FetchRequest) string {
	if r.GetMethod() == "" {
		return http.MethodGet
	}
	return r.GetMethod()
}

// header returns the first header with that name, or "".
func header(lines []*pb.Header, name string) string {
	for _, line := range lines {
		if strings.EqualFold(line.GetName(), name) {
			return valueOf(line)
		}
	}
	return ""
}

// originOf returns the scheme, host and port of a URL. A URL that cannot be parsed is its own
// origin.
func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

func withoutFragment(raw string) string {
	raw, _, _ = strings.Cut(raw, "#")
	return raw
}

// query splits the query of a URL. Parts with invalid percent-encoding are kept unchanged.
func query(raw string) []pair {
	pairs := []pair{}
	_, text, _ := strings.Cut(withoutFragment(raw), "?")
	for part := range strings.SplitSeq(text, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, pair{Name: unescape(name), Value: unescape(value)})
	}
	return pairs
}

func unescape(s string) string {
	if text, err := url.QueryUnescape(s); err == nil && utf8.ValidString(text) {
		return text
	}
	return s
}

// fill adds the stored bytes: text unchanged, everything else in base64.
func (c *content) fill(b *timeline.Body) {
	switch {
	case b.Size == 0:
	case int64(len(b.Kept)) < b.Size:
		c.Comment = "the body was not kept"
	case utf8.Valid(b.Kept):
		c.Text = string(b.Kept)
	default:
		c.Text, c.Encoding = base64.StdEncoding.EncodeToString(b.Kept), "base64"
	}
}
