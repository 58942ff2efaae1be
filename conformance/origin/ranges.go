package origin

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// selectRange narrows c to the one range that the request asks for. Several
// ranges, and what is not a range of bytes, are ignored (RFC 9110 §14.2).
func (c *content) selectRange(a *answer, h http.Header, source *io.SectionReader) {
	spec, ok := strings.CutPrefix(h.Get("Range"), "bytes=")
	if !ok || strings.Contains(spec, ",") || !a.ifRange(h) {
		return
	}
	first, last, ok := parseRange(spec, c.length)
	if !ok {
		return
	}
	total := c.length
	if first >= total || last < first {
		c.status = "416"
		c.fields = append(c.fields, Field{"Content-Range", fmt.Sprintf("bytes */%d", total)})
		c.reader, c.length = strings.NewReader(""), 0
		return
	}
	c.status = "206"
	c.fields = append(c.fields, Field{"Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, total)})
	c.length = last - first + 1
	c.reader = io.NewSectionReader(source, first, c.length)
}

// parseRange reads "first-last", "first-" or "-suffix" of a body of size
// bytes. It is not ok when that is no range at all.
func parseRange(spec string, size int64) (first, last int64, ok bool) {
	from, to, found := strings.Cut(spec, "-")
	if !found {
		return 0, 0, false
	}
	if from == "" {
		n, err := strconv.ParseUint(to, 10, 62)
		return max(size-int64(n), 0), size - 1, err == nil && n > 0
	}
	start, err := strconv.ParseUint(from, 10, 62)
	if err != nil {
		return 0, 0, false
	}
	if to == "" {
		return int64(start), size - 1, true
	}
	end, err := strconv.ParseUint(to, 10, 62)
	if err != nil || end < start {
		return 0, 0, false
	}
	return int64(start), min(int64(end), size-1), true
}
