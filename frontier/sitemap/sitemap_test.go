package sitemap

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier/work"
)

// The limit counts the bytes read, to the byte.
func TestSitemapLimit(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"XML":  "<urlset>\n<url><loc>http://a.test/1</loc></url>\n</urlset>",
		"text": "http://a.test/1\n" + strings.Repeat("# nothing\n", 13_000),
	} {
		for limit, want := range map[int]string{
			len(text):     "http://a.test/1",
			len(text) - 1: "http://a.test/1 the sitemap is longer than 50 MiB, the limit of its protocol; the rest was not read",
		} {
			var got []string
			for e := range readUpTo(limit, strings.NewReader(text), nil) {
				if e.Err != nil {
					e.URL = fmt.Sprint(e.Err)
				}
				got = append(got, e.URL)
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s of %d bytes with limit %d: %s", name, len(text), limit, diff)
			}
		}
	}
}

func FuzzSitemap(f *testing.F) {
	f.Add([]byte("<urlset><url><loc>http://a.test/1</loc></url></urlset>"))
	f.Add([]byte("<sitemapindex><sitemap><loc>http://a.test/1</loc></sitemap></sitemapindex>"))
	f.Add([]byte("\ufeff<a><b></b></a><c>"))
	f.Add([]byte("http://a.test/\n#\n\r\nx"))
	f.Add([]byte("</urlset><urlset>"))
	f.Add([]byte("<urlset><url><loc></loc >"))
	f.Fuzz(func(t *testing.T, text []byte) {
		last := 0
		for e := range Read(bytes.NewReader(text), nil) {
			if e.Line < last || e.Line > bytes.Count(text, []byte("\n"))+1 {
				t.Errorf("line %d after line %d of %q", e.Line, last, text)
			}
			if e.Err != nil && e.URL != "" {
				t.Errorf("%q has both a URL and an error, %v", e.URL, e.Err)
			}
			last = e.Line
		}
		for range Read(bytes.NewReader(text), nil) {
			break // a reader may stop at once
		}
	})
}

// TestStop checks that a caller may stop at any entry, also at the last one before an error.
func TestStop(t *testing.T) {
	t.Parallel()
	const one, two = "<url><loc>http://a.test/1</loc></url>", "<url><loc>http://a.test/2</loc>"
	for _, row := range []struct {
		name, text string
		entries    int
	}{
		{"a sitemap", "<urlset>" + one + two + "</url></urlset>", 2},
		{"a syntax error after a loc", "<urlset>" + one + two + "</urlset>", 3},
		{"elements too deep after a loc", "<urlset>" + one + two + strings.Repeat("<a>", maxDepth), 3},
		{"no sitemap", "<html>", 1},
		{"a list with a long line", "http://a.test/1\n" + strings.Repeat("x", maxLine+1) + "\nhttp://a.test/2", 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for stop := 1; stop <= row.entries+1; stop++ {
				n := 0
				for range Read(strings.NewReader(row.text), nil) {
					if n++; n == stop {
						break
					}
				}
				if want := min(stop, row.entries); n != want {
					t.Errorf("stop at %d: %d entries, want %d", stop, n, want)
				}
			}
		})
	}
}

// TestBomb checks that a small file that decompresses to much more is read up to the limit.
func TestBomb(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, head, repeat, tail string }{
		{"XML", "<urlset>", "<url><loc>http://a.test/</loc></url>\n", "</urlset>"},
		{"spaces", "<urlset>", strings.Repeat(" ", 1000), "</urlset>"},
		{"comments", "<urlset>", "<!--" + strings.Repeat(" ", 1000) + "-->", "</urlset>"},
		{"text", "", "# " + strings.Repeat("x", 1000) + "\n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			const limit = 1 << 20
			all := func() io.Reader {
				return io.MultiReader(strings.NewReader(row.head), strings.NewReader(strings.Repeat(row.repeat, 4*limit/len(row.repeat))), strings.NewReader(row.tail))
			}
			var zipped bytes.Buffer
			z := gzip.NewWriter(&zipped)
			if _, err := io.Copy(z, all()); err != nil || z.Close() != nil {
				t.Fatal(err)
			}
			for _, r := range []io.Reader{all(), &zipped} {
				var last Entry
				for e := range readUpTo(limit, r, nil) {
					last = e
				}
				if !last.Fatal || last.Err == nil {
					t.Errorf("the last entry is %+v", last)
				}
			}
		})
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	one := func(changed string) string {
		return "<urlset><url><lastmod>" + changed + "</lastmod><loc>http://a.test/1</loc></url></urlset>"
	}
	at := func(changed time.Time) []Entry { return []Entry{{Line: 1, URL: "http://a.test/1", Changed: changed}} }
	for _, row := range []struct {
		name, text string
		want       []Entry
	}{
		{"a date before its loc", one("2024-02-29"), at(day)},
		{"a date after its loc", "<urlset><url><loc>http://a.test/1</loc><lastmod>\n2024-02-29 </lastmod></url></urlset>", at(day)},
		{"a time", one("2024-02-29T01:00:00+01:00"), at(day)},
		{"a month", one("2024-02"), at(day.AddDate(0, 0, -28))},
		{"a year", one("2024"), at(day.AddDate(0, -1, -28))},
		{"a bad date", one("2024-02-30"), at(time.Time{})},
		{"the date of another URL", "<urlset><url><lastmod>2024</lastmod></url><url><loc>http://a.test/1</loc></url></urlset>", at(time.Time{})},
		{"the date of an extension", "<urlset xmlns:n='n'><url><loc>http://a.test/1</loc><n:lastmod>2024</n:lastmod><n:x><lastmod>2024</lastmod></n:x></url></urlset>", at(time.Time{})},
		{"an index", "<sitemapindex><sitemap><loc>http://a.test/1</loc><lastmod>2024-02-29</lastmod></sitemap><url><loc>http://a.test/no</loc></url></sitemapindex>",
			[]Entry{{Line: 1, URL: "http://a.test/1", Sitemap: true, Changed: day}}},
		{"a sitemap in a urlset", "<urlset><sitemap><loc>http://a.test/no</loc></sitemap></urlset>", nil},
		{"a URL that is cut off after its loc", "<urlset><url><loc>http://a.test/1</loc>", []Entry{{Line: 1, URL: "http://a.test/1"}, {Line: 1, Fatal: true}}},
		{"an element within a loc", "<urlset><url><loc>http://a.test/<b>no</b>1</loc></url></urlset>", at(time.Time{})},
		{"as many attributes as the limit", "<urlset" + attributes(100) + "><url><loc>http://a.test/1</loc></url></urlset>", at(time.Time{})},
		{"too many attributes", "<urlset><url" + attributes(101) + "><loc>http://a.test/no</loc></url></urlset>", []Entry{{Line: 1, Fatal: true}}},
		{"a web page", "<!doctype html><html><body>Not found</body></html>", []Entry{{Line: 1, Fatal: true}}},
		{"gzip that is cut off", "\x1f\x8b\x08", []Entry{{Line: 1, Fatal: true}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got []Entry
			for e := range Read(strings.NewReader(row.text), nil) {
				if e.Fatal != (e.Err != nil) {
					t.Errorf("fatal %t, error %v", e.Fatal, e.Err)
				}
				e.Err = nil
				got = append(got, e)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadList(t *testing.T) {
	t.Parallel()
	urls := func(entries iter.Seq[Entry]) (text string) {
		for e := range entries {
			text += e.URL + " "
		}
		return text
	}
	const list = "\ufeffhttp://a.test/1\r\n# no\n\n<urlset>\nhttp://a.test/2"
	if got, want := urls(ReadList(strings.NewReader(list))), "http://a.test/1 <urlset> http://a.test/2 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// attributes returns n declarations of namespaces.
func attributes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " xmlns:a%d='x'", i)
	}
	return b.String()
}

// TestWork checks that the work for a sitemap is counted, compressed or not, and that an error of the
// count ends it.
func TestWork(t *testing.T) {
	t.Parallel()
	entries := strings.Repeat("<url><loc>http://a.test/</loc></url>", 1000)
	document := "<urlset>" + entries + "</urlset>"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(document))
	_ = z.Close()
	ended := errors.New("ended")
	for _, row := range []struct {
		name, text string
		count      work.Meter
		spent      int // at least
		err        error
	}{
		{"XML", document, work.Meter{}, 16 * len(document), nil},
		{"text", strings.Repeat("http://a.test/\n", 1000), work.Meter{}, 2 * 15_000, nil},
		{"beyond the limit", document, work.Meter{Limit: 100_000}, 100_000, work.ErrLimit},
		{"ended", document, work.Meter{Pause: func(int) error { return ended }}, work.Quantum, ended},
		{"text, ended", strings.Repeat("http://a.test/\n", 10_000), work.Meter{Pause: func(int) error { return ended }}, work.Quantum, ended},
		{"at the limit", document, work.Meter{Limit: 16 * len(document)}, 16 * len(document), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var last Entry
			n := 0
			for last = range Read(strings.NewReader(row.text), &row.count) {
				n++
			}
			if !errors.Is(last.Err, row.err) || last.Fatal != (row.err != nil) || row.count.Spent() < row.spent || row.count.Spent() > row.spent+row.spent/2 {
				t.Errorf("%d entries, the last is %+v; work %d, want %d", n, last, row.count.Spent(), row.spent)
			}
			if row.err == nil && n != 1000 {
				t.Errorf("%d entries, want 1000", n)
			}
		})
	}
}
