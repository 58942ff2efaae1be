package wacz

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"fetchd/test/must"
	"fetchd/warc"
)

const page = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"

// crawled writes two WARC files: pages, and revisits of them. It returns their paths.
func crawled(t testing.TB, pages int) []string {
	t.Helper()
	dir := t.TempDir()
	first, second := newFile(t, false), newFile(t, false)
	first.record(warc.Warcinfo, "info", "software: x\r\n", nil)
	for i := range pages {
		about := func(h *warc.Header) { h.TargetURI = fmt.Sprintf("http://a.org/%d", i) }
		first.record(warc.Response, fmt.Sprint("page", i), page, about)
		second.record(warc.Revisit, fmt.Sprint("again", i), page[:strings.Index(page, "5\r\n")], func(h *warc.Header) {
			about(h)
			h.Date = day.Add(time.Hour)
			h.Profile, h.Truncated, h.PayloadDigest = warc.IdenticalPayloadDigest, warc.TruncatedLength, "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"
			h.RefersTo, h.RefersToTargetURI, h.RefersToDate = fmt.Sprint("urn:test:page", i), h.TargetURI, day
		})
	}
	var paths []string
	for i, f := range []*file{first, second} {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%d.warc.gz", i)))
		must.Succeed(t, os.WriteFile(paths[i], f.Bytes(), 0o600))
	}
	return paths
}

// known are URLs of a crawl.
func known(pages ...Page) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for _, p := range pages {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func packed(t testing.TB, p *Package) []byte {
	t.Helper()
	var out bytes.Buffer
	p.Created = day
	must.Succeed(t, p.Write(t.Context(), &out))
	return out.Bytes()
}

// checkPackage returns the problems of a package.
func checkPackage(t testing.TB, content []byte) ([]string, Counts) {
	t.Helper()
	var found []string
	c := NewCheck(func(p Problem) { found = append(found, strings.TrimPrefix(p.File, "x.wacz")+" "+p.String()) })
	defer c.Close()
	must.Succeed(t, errors.Join(c.Package("x.wacz", bytes.NewReader(content), int64(len(content))), c.References()))
	return found, c.Counts
}

// unpacked returns the names in a package in order, and their content.
func unpacked(t testing.TB, content []byte) (names []string, files map[string]string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	must.Succeed(t, err)
	files = map[string]string{}
	for _, f := range z.File {
		if f.Method != zip.Store || f.Flags&8 != 0 {
			t.Errorf("%s has the method %d and the flags %x, want a stored file whose size comes first", f.Name, f.Method, f.Flags)
		}
		in, err := f.Open()
		must.Succeed(t, err)
		text, err := io.ReadAll(in)
		must.Succeed(t, err)
		names, files[f.Name] = append(names, f.Name), string(text)
	}
	return names, files
}

// TestPackage checks the layout of a package, and that it is always the same.
func TestPackage(t *testing.T) {
	t.Parallel()
	const count = 1500
	p := &Package{Files: crawled(t, count), Title: "news", Software: "test/1", Pages: known(Page{ID: 3, URL: "http://a.org/0", Title: "Zero\u202e", Seed: true},
		Page{ID: 2, URL: "http://a.org/1", Seed: true}, Page{ID: 1, URL: "http://a.org/2", Depth: 4}, Page{ID: 4, URL: "http://a.org/3", Requisite: true},
		Page{ID: 5, URL: "http://a.org/none", Seed: true})}
	content := packed(t, p)
	if again := packed(t, p); !bytes.Equal(again, content) {
		t.Error("the package has other bytes the second time")
	}
	names, files := unpacked(t, content)
	if diff := cmp.Diff([]string{"archive/0.warc.gz", "archive/1.warc.gz", "indexes/index.cdx.gz", "indexes/index.idx", "pages/pages.jsonl", "pages/extraPages.jsonl",
		"datapackage.json", "datapackage-digest.json"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if want := "{\"format\":\"json-pages-1.0\",\"id\":\"pages\",\"title\":\"All Pages\"}\n" +
		"{\"url\":\"http://a.org/0\",\"ts\":\"2026-02-03T04:05:06Z\",\"title\":\"Zero\\u202e\",\"depth\":0,\"seed\":true}\n" +
		"{\"url\":\"http://a.org/1\",\"ts\":\"2026-02-03T04:05:06Z\",\"depth\":0,\"seed\":true}\n"; files["pages/pages.jsonl"] != want {
		t.Errorf("pages %s\nwant %s", files["pages/pages.jsonl"], want)
	}
	others := files["pages/extraPages.jsonl"]
	if n := strings.Count(others, "\n"); n != 1+count-3 || !strings.Contains(others, `{"url":"http://a.org/2","ts":"2026-02-03T04:05:06Z","depth":4}`) || strings.Contains(others, `"http://a.org/3"`) {
		t.Errorf("%d lines of other pages: %.300s", n, others)
	}
	var m manifest
	must.Succeed(t, json.Unmarshal([]byte(files["datapackage.json"]), &m))
	if m.Title != "news" || m.Version != "1.1.1" || m.MainPageURL != "http://a.org/1" || len(m.Resources) != 6 || m.Resources[5].Name != "extrapages.jsonl" {
		t.Errorf("manifest %+v", m)
	}
	found, counts := checkPackage(t, content)
	if found != nil || counts.Lines != 2*count || counts.Pages != count-1 || counts.Records != 2*count+1 || counts.Elsewhere != 0 {
		t.Errorf("problems %.5q, counts %+v", found, counts)
	}
	if n := strings.Count(files["indexes/index.idx"], "\n"); n != 1+3 {
		t.Errorf("%d lines in index.idx, want one and one for each block", n)
	}
}

// TestPackageRefuses checks which files are not packed.
func TestPackageRefuses(t *testing.T) {
	t.Parallel()
	good := crawled(t, 3)
	whole, err := os.ReadFile(good[0])
	must.Succeed(t, err)
	other := func(content []byte) []string {
		path := filepath.Join(t.TempDir(), "0.warc.gz")
		must.Succeed(t, os.WriteFile(path, content, 0o600))
		return []string{path}
	}
	for _, row := range []struct {
		name  string
		files []string
		want  string
	}{
		{"revisits alone", good[1:], "1.warc.gz: the revisit urn:test:again0 of http://a.org/0 refers to a record that is in none of the files: add the files of the earlier crawl"},
		{"not compressed", other([]byte("WARC/1.1\r\n")), "is not compressed with gzip"},
		{"truncated", other(whole[:len(whole)-5]), "the file ends inside a record"},
		{"not there", []string{"/nothing/x.warc.gz"}, "no such file"},
	} {
		p := &Package{Files: row.files, Pages: known()}
		err := p.Write(t.Context(), io.Discard)
		if _, ok := errors.AsType[*InputError](err); !ok || !strings.Contains(fmt.Sprint(err), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Package{Files: good, Pages: known()}).Write(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}

// entryOf is a file of a package that is rebuilt.
type entryOf struct {
	name, content string
	method        uint16
}

func rebuilt(t testing.TB, entries []entryOf) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e.name, Method: e.method})
		must.Succeed(t, err)
		_, err = io.WriteString(w, e.content)
		must.Succeed(t, err)
	}
	must.Succeed(t, z.Close())
	return out.Bytes()
}

// TestCheckPackage changes a package, also as a stranger would who wants to use up memory.
func TestCheckPackage(t *testing.T) {
	t.Parallel()
	names, files := unpacked(t, packed(t, &Package{Files: crawled(t, 3), Pages: known(Page{URL: "http://a.org/0", Seed: true})}))
	replace := func(name, content string, method uint16) func([]entryOf) []entryOf {
		return func(all []entryOf) []entryOf {
			i := slices.IndexFunc(all, func(e entryOf) bool { return e.name == name })
			all[i].content, all[i].method = content, method
			return all
		}
	}
	without := func(name string) func([]entryOf) []entryOf {
		return func(all []entryOf) []entryOf {
			return slices.DeleteFunc(all, func(e entryOf) bool { return e.name == name })
		}
	}
	for _, row := range []struct {
		name   string
		change func([]entryOf) []entryOf
		want   string // in the problems
	}{
		{"compressed", replace("archive/0.warc.gz", files["archive/0.warc.gz"], zip.Deflate), "/archive/0.warc.gz is compressed in the ZIP file"},
		{"other content", replace("pages/pages.jsonl", files["pages/pages.jsonl"]+"\n", zip.Store), "/pages/pages.jsonl has "},
		{"no pages", without("pages/pages.jsonl"), " there is no pages/pages.jsonl"},
		{"no index", without("indexes/index.idx"), " there is neither index.idx nor index.cdx in indexes/"},
		{"no blocks", without("indexes/index.cdx.gz"), "/indexes/index.cdx.gz is missing"},
		{"no manifest", without("datapackage.json"), " there is no datapackage.json"},
		{"no records", without("archive/0.warc.gz"), "refers to a record that is in none of the files, so http://a.org/0 cannot be replayed"},
		{"a line about no record", without("archive/0.warc.gz"), "a line of the index is about \"0.warc.gz\" "},
		{"another manifest", replace("datapackage-digest.json", `{"path":"datapackage.json","hash":"sha256:00"}`, zip.Store), "/datapackage-digest.json has another digest"},
		{"a file that is not listed", func(all []entryOf) []entryOf { return append(all, entryOf{"pages/more.txt", "x", zip.Store}) }, "/pages/more.txt is not listed"},
		{"a path outside", func(all []entryOf) []entryOf { return append(all, entryOf{"archive/../../x.warc.gz", "x", zip.Store}) }, "/archive/../../x.warc.gz is not a name in a package"},
		{"an absolute path", func(all []entryOf) []entryOf { return append(all, entryOf{"/x", "x", zip.Store}) }, "is not a name in a package"},
		{"a name twice", func(all []entryOf) []entryOf { return append(all, all[0]) }, "/archive/0.warc.gz is there twice"},
		{"a bomb", replace("pages/pages.jsonl", strings.Repeat("\n", maxText+1), zip.Deflate), "/pages/pages.jsonl cannot be read: the files that are compressed"},
		{"a line without an end", replace("pages/pages.jsonl", strings.Repeat("x", maxPageLine+1), zip.Store), "/pages/pages.jsonl line 1 cannot be read: it is longer"},
		{"an index without an end", replace("indexes/index.idx", strings.Repeat("x", maxIndexLine+1), zip.Store), "/indexes/index.idx line 1 cannot be read: it is longer"},
		{"blocks that do not follow", replace("indexes/index.idx", strings.Replace(files["indexes/index.idx"], `"offset":0`, `"offset":1`, 1), zip.Store), "the block does not follow the one before it"},
		{"a block with another digest", replace("indexes/index.idx", strings.Replace(files["indexes/index.idx"], `"sha256:`, `"sha256:0`, 1), zip.Store), "the block has another digest"},
		{"a plain index of other records", func(all []entryOf) []entryOf {
			return append(without("indexes/index.idx")(all), entryOf{"indexes/index.cdx", `org,a)/0 20260203040506 {"url":"http://b.org/","length":"1","offset":"0","filename":"0.warc.gz"}` + "\n", zip.Store})
		}, `where no record is`},
		{"an index that is too long", func(all []entryOf) []entryOf {
			return append(without("indexes/index.idx")(all), entryOf{"indexes/index.cdx", strings.Repeat("a 1 {}\n", 7), zip.Store})
		}, "it has more lines than the WARC files have records"},
		{"lines in another order", func(all []entryOf) []entryOf {
			return append(without("indexes/index.idx")(all), entryOf{"indexes/index.cdx", "b 1 {}\na 1 {}\n", zip.Store})
		}, "line 2 is not in the order of bytes"},
		{"a manifest of many objects", replace("datapackage.json", `{"resources":[`+strings.Repeat("{},", 1_000_000)+`{}]}`, zip.Deflate), "/datapackage.json has more than 1032 objects, for 8 files"},
		{"a block of empty lines", func(all []entryOf) []entryOf {
			block := gzipped(t, strings.Repeat("\n", 64<<20))
			idx := fmt.Sprintf("!meta 0 {\"format\":%q,\"filename\":%q}\na 1 {\"offset\":0,\"length\":%d,\"filename\":%[2]q}\n", idxFormat, indexName, len(block))
			return replace("indexes/index.idx", idx, zip.Store)(replace("indexes/index.cdx.gz", block, zip.Store)(all))
		}, "/indexes/index.cdx.gz line 1 cannot be read: there are more than 1000 empty lines"},
		{"many files", func(all []entryOf) []entryOf {
			for i := range maxDirectory / 40 {
				all = append(all, entryOf{name: fmt.Sprint(i)})
			}
			return all
		}, fmt.Sprint(errDirectory)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var all []entryOf
			for _, name := range names {
				all = append(all, entryOf{name, files[name], zip.Store})
			}
			found, counts := checkPackage(t, rebuilt(t, row.change(all)))
			if !slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, row.want) }) || counts.Problems != len(found) || len(found) > 20 {
				t.Errorf("problems %.20q, want %q", found, row.want)
			}
		})
	}
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	out := gzip.NewWriter(&b)
	_, err := io.WriteString(out, text)
	must.Succeed(t, errors.Join(err, out.Close()))
	return b.String()
}

// TestCheckOverlap checks a package whose files are the same bytes, which make it as long as a stranger wants.
func TestCheckOverlap(t *testing.T) {
	t.Parallel()
	content := rebuilt(t, []entryOf{{"archive/0", strings.Repeat("x", 1000), zip.Store}, {"archive/1", "", zip.Store}})
	at := bytes.LastIndex(content, []byte("PK\x01\x02")) // the second one in the directory
	copy(content[at+20:], []byte{0xe8, 3, 0, 0, 0xe8, 3, 0, 0})
	if found, _ := checkPackage(t, content); len(found) != 1 || !strings.Contains(found[0], "the files overlap") {
		t.Errorf("problems %q", found)
	}
}

// FuzzPackage checks that no package stops the check.
func FuzzPackage(f *testing.F) {
	f.Add(packed(f, &Package{Files: crawled(f, 2), Pages: known(Page{URL: "http://a.org/0", Seed: true})}))
	f.Add(rebuilt(f, []entryOf{{"archive/0", "x", zip.Deflate}, {"indexes/index.cdx", "a b {}", zip.Deflate}}))
	f.Fuzz(func(t *testing.T, content []byte) { checkPackage(t, content) })
}
