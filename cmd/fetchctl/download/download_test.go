package download

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance/origin"
	"fetchd/internal/cli"
	"fetchd/internal/reflex"
	"fetchd/test/clitest"
	"fetchd/test/need"
	"fetchd/test/rig"
)

var fetchctl = clitest.Command("fetchctl", func() any {
	return new(struct {
		Download Command `cmd:""`
	})
})

// listed runs a download of a list that is given as standard input; {O} in it is
// the origin.
func listed(t *testing.T, o *origin.Origin, dir, list string, args ...string) clitest.Result {
	t.Helper()
	list = strings.ReplaceAll(list, "{O}", o.URL("http", "/s"))
	return fetchctl.With(t.Context(), list, nil, append([]string{"download", "-d", dir, "-"}, args...)...)
}

func ranges(o *origin.Origin, key string) (asked []string) {
	for _, r := range o.Requests(key) {
		asked = append(asked, r.Header.Get("Range"))
	}
	return asked
}

// What an earlier run left meets an origin that is as it was, or is not.
func TestDownloadContinues(t *testing.T) {
	t.Parallel()
	const (
		size = 1_000_000
		have = 400_000
		tag  = ",etag=%22v1%22,range"
	)
	whole := fmt.Sprintf("200:size=%d", size)
	for _, tt := range []struct {
		name, script string
		validator    string
		total        int64
		args         []string
		want         int
		ranges       []string
		left         []string // in the folder; nil: the file alone
		empty        bool
		size         int // of the file; 0: size
	}{
		{name: "the same", script: whole + tag, ranges: []string{"bytes=400000-"}},
		{name: "the same by its date", script: whole + ",last-modified=Mon%2C%2005%20Jan%202026%2010:00:00%20GMT,range",
			validator: "Mon, 05 Jan 2026 10:00:00 GMT", ranges: []string{"bytes=400000-"}},
		{name: "after a 503", script: "503/" + whole + tag, ranges: []string{"bytes=400000-", "bytes=400000-"}},
		{name: "cut again", script: whole + tag + ",cut=100000/" + whole + tag, ranges: []string{"bytes=400000-", "bytes=500000-"}},
		{name: "changed", script: whole + ",etag=%22v2%22,range", ranges: []string{"bytes=400000-"}},
		{name: "changed, cut, changed back", script: whole + ",etag=%22v2%22,range,cut=500000/" + whole + tag, ranges: []string{"bytes=400000-", "bytes=500000-"}},
		{name: "empty now", script: "200:size=0,etag=%22v2%22,range", ranges: []string{"bytes=400000-"}, empty: true},
		{name: "nothing was missing", script: "200:size=400000,etag=%22v1%22,range", total: have, ranges: []string{"bytes=400000-"}, size: have},
		{name: "no ranges", script: whole, ranges: []string{"bytes=400000-"}},
		{name: "another size under the same tag", script: whole + tag, total: size + 7, ranges: []string{"bytes=400000-", ""}},
		{name: "416 for what is longer", script: "416:header=Content-Range=bytes%20*%2F3/" + whole + tag, ranges: []string{"bytes=400000-", ""}},
		{name: "a wrong 206", script: "206:size=10/" + whole + tag, args: []string{"-r", "0"}, ranges: []string{"bytes=400000-", ""}},
		{name: "gone", script: "404", want: cli.ExitPermanent, ranges: []string{"bytes=400000-", ""}, left: []string{}},
		{name: "gone for good", script: "410", want: cli.ExitPermanent, ranges: []string{"bytes=400000-", ""}, left: []string{}},
		{name: "forbidden", script: "403", want: cli.ExitNeedsAuth, ranges: []string{"bytes=400000-", ""}, left: []string{"file.part", "file.part.json"}},
		{name: "ranges are refused", script: "412/" + whole, ranges: []string{"bytes=400000-", ""}},
		{name: "a digest that is right", script: whole + tag, args: []string{"--sha256sums", "right"}, ranges: []string{"bytes=400000-"}},
		{name: "a digest that is wrong", script: whole + tag, args: []string{"--sha256sums", "wrong"}, want: cli.ExitPermanent, ranges: []string{"bytes=400000-", ""}, left: []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir, sums := rig.Origin(t), t.TempDir(), t.TempDir()
			want := o.Body(size)
			for name, body := range map[string][]byte{"right": want, "wrong": want[1:]} {
				clitest.Must(t, os.WriteFile(filepath.Join(sums, name), []byte(fmt.Sprintf("%x", sha256.Sum256(body))+"  file\n"), 0o600))
			}
			if n := len(tt.args); n > 0 && tt.args[0] == "--sha256sums" {
				tt.args = []string{tt.args[0], filepath.Join(sums, tt.args[1])}
			}
			sidecar := map[string]any{"version": 1, "url": o.URL("http", "/s/k/"+tt.script),
				"validator": cmp.Or(tt.validator, `"v1"`), "offset": have, "total": cmp.Or(tt.total, size)}
			text, err := json.Marshal(sidecar)
			clitest.Must(t, err)
			for name, b := range map[string][]byte{"file.part": append(want[:have:have], "torn"...), "file.part.json": text} {
				clitest.Must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
			}
			got := listed(t, o, dir, "{O}/k/"+tt.script, tt.args...)
			if got.Code != tt.want {
				t.Errorf("exit status %d, want %d\n%s", got.Code, tt.want, got.Err)
			}
			if asked := ranges(o, "k"); !slices.Equal(asked, tt.ranges) {
				t.Errorf("ranges %q, want %q\n%s", asked, tt.ranges, got.Err)
			}
			if tt.left != nil {
				only(t, dir, tt.left...)
				return
			}
			switch {
			case tt.empty:
				want = nil
			case tt.size > 0:
				want = want[:tt.size]
			}
			clitest.File(t, filepath.Join(dir, "file"), want)
			only(t, dir, "file")
		})
	}
}

// How a file ends, and what of it is there then.
func TestDownloadEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, list string
		args       []string
		want       int
		told       string
		there      []string
	}{
		{"two that want one name", "{O}/a/200\n{O}/b/200\n", nil, cli.ExitOK, "2 completed", []string{"200", "200-"}},
		{"one URL twice", "{O}/a/200\n{O}/a/200\n{O}/a/200 named\n", nil, cli.ExitOK, "1 completed", []string{"named"}},
		{"two names that differ in case", "{O}/a/200 File\n{O}/b/200:body=file file2\n{O}/c/200:header=Content-Disposition=x%3Bfilename=FILE\n", []string{"-j", "1"}, cli.ExitOK, "3 completed", []string{"FILE-", "File", "file2"}},
		{"one name twice", "{O}/a/200 x\n{O}/b/200 X\n", nil, cli.ExitUsage, "was given before", []string{}},
		{"the origin's name", "{O}/a/200:header=Content-Disposition=attachment%3Bfilename=x.txt\n", nil, cli.ExitOK, "x.txt  done", []string{"x.txt"}},
		{"the user's name goes first", "{O}/a/200:header=Content-Disposition=attachment%3Bfilename=x.txt mine\n", nil, cli.ExitOK, "mine  done", []string{"mine"}},
		{"two of one name of the origin's", "{O}/a/200:body=a,header=Content-Disposition=x%3Bfilename=x.txt\n{O}/b/200:body=bb,header=Content-Disposition=x%3Bfilename=x.txt\n", []string{"-j", "1"}, cli.ExitOK, "2 completed", []string{"x-", "x.txt"}},
		{"a hostile name", "{O}/a/200:header=Content-Disposition=attachment%3Bfilename=%22..%2F..%2F..%2Ftmp%2Fx%22\n", nil, cli.ExitOK, "1 completed", []string{"x"}},
		{"a hostile extended name", "{O}/a/200:header=Content-Disposition=attachment%3Bfilename*=UTF-8''%252e%252e%252f.x%25e2%2580%25ae\n", nil, cli.ExitOK, "1 completed", []string{"x_"}},
		{"no body", "{O}/a/204 empty\n", nil, cli.ExitOK, "1 completed", []string{"empty"}},
		{"an empty body", "{O}/a/200:size=0 empty\n", nil, cli.ExitOK, "1 completed", []string{"empty"}},
		{"a body without a length", "{O}/a/200:size=9,no-length x\n", nil, cli.ExitOK, "sent no length", []string{"x"}},
		{"a part without a Range request", "{O}/a/206:size=9,header=Content-Range=bytes%200-8%2F100 x\n", nil, cli.ExitPermanent, "a part", []string{}},
		{"a redirect that leads nowhere", "{O}/a/300 x\n", nil, cli.ExitPermanent, "redirect", []string{}},
		{"not there", "{O}/a/404 x\n", nil, cli.ExitPermanent, "failed  404", []string{}},
		{"transient", "{O}/a/503 x\n", []string{"-r", "0"}, cli.ExitTransient, "http_server_error", []string{}},
		{"rate", "{O}/a/429 x\n", []string{"-r", "0"}, cli.ExitRateLimited, "rate_limited", []string{}},
		{"not there, quietly", "{O}/a/404 x\n", []string{"-q"}, cli.ExitPermanent, "x  failed  404", []string{}},
		{"not allowed", "{O}/a/403 x\n", nil, cli.ExitNeedsAuth, "forbidden", []string{}},
		{"the exit code is that of the gravest failure", "{O}/a/429 x\n{O}/b/503 y\n{O}/c/404 z\n{O}/d/200 w\n", []string{"-r", "0"}, cli.ExitPermanent, "1 completed, 3 failed", []string{"w"}},
		{"cut without a validator", "{O}/a/200:size=900000,cut=600000 x\n", []string{"-r", "0"}, cli.ExitTransient, "body_interrupted", []string{}},
		{"cut with one", "{O}/a/200:size=900000,etag=%22v%22,range,cut=600000 x\n", []string{"-r", "0"}, cli.ExitTransient, "585.9 KiB kept", []string{"x.part", "x.part.json"}},
		{"one retry", "{O}/a/503:retry-after=0/200 x\n", nil, cli.ExitOK, "1 completed, 0 failed, 1 retry, 0 already there", []string{"x"}},
		{"retries of one file", "{O}/a/503:retry-after=0/503:retry-after=0/200 x\n{O}/b/200 y\n", nil, cli.ExitOK, "2 completed, 0 failed, 2 retries of 1 file, 0", []string{"x", "y"}},
		{"retries of two files", "{O}/a/503:retry-after=0/503:retry-after=0/200 x\n{O}/b/503:retry-after=0/404 y\n", nil, cli.ExitPermanent, "1 completed, 1 failed, 3 retries of 2 files, 0", []string{"x"}},
		{"no attempt", "http://user@origin.test/ x\n", nil, cli.ExitUsage, "1 failed, 0 retries, 0", []string{}},
		{"what the service refuses", "http://user@origin.test/ x\n{O}/b/200 y\n", nil, cli.ExitUsage, "url: ", []string{"y"}},
		{"what is no URL", "ftp://origin.test/\n", nil, cli.ExitUsage, "-:1: ", []string{}},
		{"three bad lines", "ftp://origin.test/\n{O}/a/200\n{O}/b/200 ../x\norigin.test\n", nil, cli.ExitUsage, "fetchctl: 3 URLs are not usable\n  -:1: \"ftp://origin.test/\" is not an absolute http or https URL\n  -:3: \"../x\" cannot be the name of a file here; \"_x\" can\n  -:4: \"origin.test\" has no scheme: did you mean https://origin.test?\n", []string{}},
		{"many bad lines", strings.Repeat("ftp://origin.test/\n", 25), nil, cli.ExitUsage, "  -:20: \"ftp://origin.test/\" is not an absolute http or https URL\n  and 5 more\n", []string{}},
		{"no URL at all", "# none\n", nil, cli.ExitUsage, "is missing", []string{}},
		{"too many jobs", "{O}/a/200\n", []string{"-j", "65"}, cli.ExitUsage, "--jobs", []string{}},
		{"too many retries", "{O}/a/200\n", []string{"-r", "11"}, cli.ExitUsage, "--max-retries", []string{}},
		{"a rate of nothing", "{O}/a/200\n", []string{"--limit-rate", "0"}, cli.ExitUsage, "--limit-rate", []string{}},
		{"too slow a rate", "{O}/a/200\n", []string{"--limit-rate", "8191"}, cli.ExitUsage, "--limit-rate", []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), t.TempDir()
			got := listed(t, o, dir, tt.list, tt.args...)
			if got.Code != tt.want || !strings.Contains(got.Err, tt.told) || got.Out != "" || slices.Contains(tt.args, "-q") && strings.Contains(got.Err, "retries") {
				t.Errorf("exit status %d, %q, %q; want %d and %q", got.Code, got.Out, got.Err, tt.want, tt.told)
			}
			entries, err := os.ReadDir(dir)
			clitest.Must(t, err)
			var there []string
			for _, e := range entries {
				if e.Name() == urlsName {
					continue
				}
				name, _, _ := strings.Cut(e.Name(), "-") // what follows is a mark of the URL
				if name != e.Name() {
					name += "-"
				}
				there = append(there, name)
			}
			if slices.Sort(there); !slices.Equal(there, tt.there) {
				t.Errorf("the folder holds %q, want %q", there, tt.there)
			}
		})
	}
}

// TestDownloadSends checks that every request has the headers of the flags.
func TestDownloadSends(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	got := listed(t, o, t.TempDir(), "{O}/k/503:retry-after=0/200\n{O}/k2/200\n", "-H", "X-Token: one", "-H", "User-Agent: agent", "-u", "ann:hush")
	asked := append(o.Requests("k"), o.Requests("k2")...)
	if got.Code != cli.ExitOK || len(asked) != 3 {
		t.Errorf("exit status %d, %d requests, want 0 and 3\n%s", got.Code, len(asked), got.Err)
	}
	for _, r := range asked {
		if user, password, _ := (&http.Request{Header: r.Header}).BasicAuth(); r.Header.Get("X-Token") != "one" || r.Header.Get("User-Agent") != "agent" || user != "ann" || password != "hush" {
			t.Errorf("a request has the headers %v", r.Header)
		}
	}
	if got := listed(t, o, t.TempDir(), "{O}/k3/200\n", "-H", "Authorization: x", "-u", "ann:hush"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "-u: sets Authorization, and so does -H") {
		t.Errorf("two of one header: exit status %d, %s", got.Code, got.Err)
	}
}

// TestDownloadOtherURL downloads into a folder with files of other URLs. None of them counts as the file that is asked
// for, and a file of the same URL costs no request, whatever its name.
func TestDownloadOtherURL(t *testing.T) {
	t.Parallel()
	const first = "{O}/a/200:body=a\n{O}/n/200:body=n,header=Content-Disposition=x%3Bfilename=n.txt\n{O}/m/200:body=m mine\n"
	for _, tt := range []struct {
		name, list string
		args       []string
		want       int
		says       string
		asked      int // requests for b
	}{
		{"the same URLs", first, nil, cli.ExitOK, "0 completed, 0 failed, 0 retries, 3 already there", 0},
		{"a URL that was given a name", "{O}/m/200:body=m\n", nil, cli.ExitOK, "mine  already there", 0},
		{"another URL of the same name", "{O}/b/200:body=a\n", nil, cli.ExitOK, "1 completed", 1},
		{"another URL of the origin's name", "{O}/b/200:body=n,header=Content-Disposition=x%3Bfilename=n.txt\n", nil, cli.ExitOK, "1 completed", 1},
		{"another URL of the given name", "{O}/b/200:body=m mine\n", nil, cli.ExitOutput, "mine  failed  exists, and is the file of another URL: ", 0},
		{"another URL of the given name by force", "{O}/b/200:body=m mine\n", []string{"-f"}, cli.ExitOK, "1 completed", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), t.TempDir()
			if got := listed(t, o, dir, first); got.Code != cli.ExitOK {
				t.Fatalf("the first run: exit status %d\n%s", got.Code, got.Err)
			}
			for _, run := range []string{"the second run", "the third run"} {
				got := listed(t, o, dir, tt.list, tt.args...)
				if got.Code != tt.want || run == "the second run" && !strings.Contains(got.Err, tt.says) {
					t.Errorf("%s: exit status %d, want %d and %q\n%s", run, got.Code, tt.want, tt.says, got.Err)
				}
				if asked := len(o.Requests("b")); asked != tt.asked && tt.args == nil {
					t.Errorf("%s: %d requests, want %d in all", run, asked, tt.asked)
				}
			}
			clitest.File(t, filepath.Join(dir, "n.txt"), []byte("n"))
			for _, key := range []string{"a", "n", "m"} {
				if n := len(o.Requests(key)); n != 1 {
					t.Errorf("%d requests for %s, want 1", n, key)
				}
			}
		})
	}
}

// TestDownloadRecord downloads into folders with a record that is not as fetchctl wrote it.
func TestDownloadRecord(t *testing.T) {
	t.Parallel()
	const ours = `{"name":"x","url":"{O}/a/200"}`
	for _, tt := range []struct {
		name, record, list string // "/": the record is a folder, so that nothing can read it
		args               []string
		want               int
		says               string
		told               int // that the record cannot be read
	}{
		{"the URL", ours, "{O}/a/200\n", nil, cli.ExitOK, "1 already there", 0},
		{"the URL, quietly", ours, "{O}/a/200\n", []string{"-q"}, cli.ExitOK, "", 0},
		{"a URL that is not known", ours + "\n" + `{"name":"x","url":""}`, "{O}/a/200 x\n", nil, cli.ExitOutput, "does not have its URL", 0},
		{"behind a long line", `"` + strings.Repeat("x", 1<<20) + "\"\n" + ours, "{O}/a/200\n", nil, cli.ExitOK, "1 already there", 0},
		{"a long line of the name", ours + "\n" + `{"name":"x","url":"` + strings.Repeat("x", maxSidecar) + `"}`, "{O}/a/200\n", nil, cli.ExitOK, "1 already there", 0},
		{"a name that leads elsewhere", `{"name":"sub/y","url":"{O}/a/200"}`, "{O}/a/200\n", nil, cli.ExitOK, "1 completed", 0},
		{"a hidden name", `{"name":"` + urlsName + `","url":"{O}/a/200"}`, "{O}/a/200\n", nil, cli.ExitOK, "1 completed", 0},
		{"none that can be read", "/", "{O}/a/200\n{O}/b/200 y\n", nil, cli.ExitOK, "2 completed", 1},
		{"none that can be read, and a file", "/", "{O}/a/200 x\n{O}/b/200 y\n", nil, cli.ExitOutput, "1 completed, 1 failed", 1},
		{"none that can be read, by force", "/", "{O}/a/200 x\n{O}/b/200 y\n", []string{"-f"}, cli.ExitOutput, "1 completed, 1 failed", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), t.TempDir()
			clitest.Must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
			for _, name := range []string{"x", "sub/y"} {
				clitest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("there"), 0o600))
			}
			if tt.record == "/" {
				clitest.Must(t, os.Mkdir(filepath.Join(dir, urlsName), 0o700))
			} else {
				clitest.Must(t, os.WriteFile(filepath.Join(dir, urlsName), []byte(strings.ReplaceAll(tt.record, "{O}", o.URL("http", "/s"))), 0o600))
			}
			got := listed(t, o, dir, tt.list, tt.args...)
			if got.Code != tt.want || !strings.Contains(got.Err, tt.says) || strings.Count(got.Err, "read "+urlsName+": ") != tt.told {
				t.Errorf("exit status %d, want %d and %q\n%s", got.Code, tt.want, tt.says, got.Err)
			}
			clitest.File(t, filepath.Join(dir, "x"), []byte("there"))
		})
	}
}

// TestDownloadRecordKept checks that others can read the record like the files, and that a file with the listed digest
// is in it.
func TestDownloadRecordKept(t *testing.T) {
	t.Parallel()
	o, dir := rig.Origin(t), t.TempDir()
	sums := filepath.Join(t.TempDir(), "sums")
	clitest.Must(t, os.WriteFile(sums, fmt.Appendf(nil, "%x  mine\n", sha256.Sum256([]byte("mine"))), 0o600))
	clitest.Must(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("mine"), 0o600))
	for _, args := range [][]string{{"--sha256sums", sums}, {"--sha256sums", sums}, nil} {
		if got := listed(t, o, dir, "{O}/a/200 mine\n", args...); got.Code != cli.ExitOK || !strings.Contains(got.Err, "1 already there") {
			t.Errorf("with %q: exit status %d\n%s", args, got.Code, got.Err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, urlsName)); err != nil || bytes.Count(text, []byte("mine")) != 1 {
		t.Errorf("the record is %q, %v; want one line", text, err)
	}
	if got := listed(t, o, dir, "{O}/b/200 x\n"); got.Code != cli.ExitOK {
		t.Fatalf("exit status %d\n%s", got.Code, got.Err)
	}
	record, err := os.Stat(filepath.Join(dir, urlsName))
	if clitest.Must(t, err); record.Mode() != 0o600 {
		t.Errorf("the record has the mode %v, want that of a secret", record.Mode())
	}
}

// A file that is there stays as it is.
func TestDownloadThere(t *testing.T) {
	t.Parallel()
	o, dir := rig.Origin(t), t.TempDir()
	for name, text := range map[string]string{"file": "mine", "named.txt": "mine", "other.part": "somebody's"} {
		clitest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	clitest.Must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	const list = "{O}/a/200 file\n{O}/b/200 link\n{O}/c/200:body=four,header=Content-Disposition=x%3Bfilename=named.txt\n" +
		"{O}/d/200:body=longer,header=Content-Disposition=x%3Bfilename=named.txt\n"
	got := listed(t, o, dir, list, "-j", "1")
	if got.Code != cli.ExitOutput || strings.Count(got.Err, "exists, and "+urlsName+" does not have its URL") != 2 || !strings.Contains(got.Err, "2 completed, 2 failed, 0 retries, 0 already there") {
		t.Errorf("exit status %d\n%s", got.Code, got.Err)
	}
	if n := len(o.Requests("a")) + len(o.Requests("b")); n != 0 {
		t.Errorf("%d requests for what was there", n)
	}
	clitest.File(t, filepath.Join(dir, "file"), []byte("mine"))
	clitest.File(t, filepath.Join(dir, "named.txt"), []byte("mine"))

	got = listed(t, o, dir, "{O}/e/200:body=x other\n")
	if got.Code != cli.ExitOutput || !strings.Contains(got.Err, "is not of this program") {
		t.Errorf("over somebody's part: exit status %d\n%s", got.Code, got.Err)
	}
	clitest.File(t, filepath.Join(dir, "other.part"), []byte("somebody's"))

	sums := filepath.Join(t.TempDir(), "sums")
	clitest.Must(t, os.WriteFile(sums, []byte(fmt.Sprintf("%x", sha256.Sum256([]byte("mine")))+"  named.txt\n"+fmt.Sprintf("%x", sha256.Sum256([]byte("x")))+"  file\n"), 0o600))
	got = listed(t, o, dir, "{O}/f/200 file\n{O}/g/200 named.txt\n{O}/h/200 unlisted\n", "--sha256sums", sums)
	if got.Code != cli.ExitPermanent || !strings.Contains(got.Err, "2 failed, 0 retries, 1 already there") || !strings.Contains(got.Err, "not in the list") {
		t.Errorf("with digests: exit status %d\n%s", got.Code, got.Err)
	}
	got = listed(t, o, dir, "{O}/i/200:body=new file\n{O}/j/200:body=new link\n{O}/k/200:body=new other\n", "--force")
	if got.Code != cli.ExitOK {
		t.Errorf("by force: exit status %d\n%s", got.Code, got.Err)
	}
	for _, name := range []string{"file", "link", "other"} {
		clitest.File(t, filepath.Join(dir, name), []byte("new"))
	}
}

// No more than -j files are in flight at once, and they begin in their order.
func TestDownloadJobs(t *testing.T) {
	t.Parallel()
	o, dir := rig.Origin(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var list strings.Builder
	for i := range 8 {
		fmt.Fprintf(&list, "%s f%d\n", o.URL("http", fmt.Sprintf("/s/k%d/silent", i)), i)
	}
	ended := make(chan clitest.Result, 1)
	go func() { ended <- fetchctl.With(ctx, list.String(), nil, "download", "-d", dir, "-j", "3", "-") }()
	for _, key := range []string{"k0", "k1", "k2"} {
		if _, err := o.Await(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	got := <-ended
	if n := len(o.AllRequests()); got.Code != cli.ExitInterrupted || n != 3 || !strings.Contains(got.Err, "3 interrupted, 5 not started") {
		t.Errorf("exit status %d, %d requests, want 3\n%s", got.Code, n, got.Err)
	}
	got = listed(t, o, t.TempDir(), "{O}/x/200 a\n{O}/x/200 b\n{O}/x/200 c\n{O}/x/200 d\n{O}/x/200 e\n", "-j", "1", "--json", "-q")
	var order string
	for line := range strings.Lines(got.Out) {
		var r Result
		clitest.Must(t, json.Unmarshal([]byte(line), &r))
		order += r.Name
	}
	if order != "abcde" || got.Err != "" {
		t.Errorf("one at a time: %q, told %q", order, got.Err)
	}
}

// A disk that is full fails the file, and what was written is continued where
// there is room again.
func TestDownloadDiskFull(t *testing.T) {
	t.Parallel()
	dir, o := need.SmallDisk(t, "size=1m"), rig.Origin(t)
	const list = "{O}/k/200:size=3000000,etag=%22v%22,range file\n"
	got := listed(t, o, dir, list)
	if got.Code != cli.ExitOutput || !strings.Contains(got.Err, "no space left") {
		t.Fatalf("exit status %d\n%s", got.Code, got.Err)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "remount,size=8m", dir).CombinedOutput(); err != nil {
		t.Fatalf("cannot make room: %s", out)
	}
	got = listed(t, o, dir, list)
	asked := ranges(o, "k")
	if got.Code != cli.ExitOK || len(asked) != 2 || asked[1] == "" {
		t.Errorf("with room: exit status %d, ranges %q\n%s", got.Code, asked, got.Err)
	}
	clitest.File(t, filepath.Join(dir, "file"), o.Body(3_000_000))
	only(t, dir, "file")
}

// A folder that cannot be written to is said to be so.
func TestDownloadReadOnly(t *testing.T) {
	t.Parallel()
	var dir string
	if os.Getuid() == 0 {
		dir = need.SmallDisk(t, "ro,size=1m")
	} else if dir = t.TempDir(); os.Chmod(dir, 0o500) != nil { //nolint:gosec // it is a folder
		t.Fatal("cannot make it read-only")
	}
	o := rig.Origin(t)
	if got := listed(t, o, dir, "{O}/k/200 file\n"); got.Code != cli.ExitOutput || !strings.Contains(got.Err, "1 failed") {
		t.Errorf("exit status %d\n%s", got.Code, got.Err)
	}
	if got := fetchctl.Run(t, "download", "-d", filepath.Join(dir, "new"), o.URL("http", "/s/k/200")); got.Code != cli.ExitOutput {
		t.Errorf("a new folder: exit status %d\n%s", got.Code, got.Err)
	}
	only(t, dir)
}

// A service that is not there ends the run, for no file would fare better.
func TestDownloadNoService(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	got := listed(t, o, t.TempDir(), strings.Repeat("{O}/k/200\n", 1)+"{O}/l/200\n{O}/m/200\n", "-j", "1", "--server", o.Addr("refused"))
	if got.Code != cli.ExitService || !strings.Contains(got.Err, "2 not started") || !strings.Contains(got.Err, "Is fetchd running at") {
		t.Errorf("exit status %d\n%s", got.Code, got.Err)
	}
	addr := clitest.Server(t)
	dir := t.TempDir()
	if got := listed(t, o, dir, "{O}/k/200:size=3000000 file\n", "--server", addr); got.Code != cli.ExitOK {
		t.Errorf("through a service elsewhere: exit status %d\n%s", got.Code, got.Err)
	}
	clitest.File(t, filepath.Join(dir, "file"), o.Body(3_000_000))
}

// TestAnsweredTwice checks that a file that may be another response is not kept, unless its digest is
// known, and that get says so.
func TestAnsweredTwice(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("text\n"), 200_000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/second" {
			_ = rig.AnswerTwice(w, text)
			return
		}
		_, _ = w.Write([]byte("text"))
	}))
	defer srv.Close()
	sums := filepath.Join(t.TempDir(), "sums")
	clitest.Must(t, os.WriteFile(sums, []byte(fmt.Sprintf("%x", sha256.Sum256([]byte("text")))+"  first\n"+fmt.Sprintf("%x", sha256.Sum256(text))+"  second\n"), 0o600))
	for _, row := range []struct {
		name string
		args []string
		code int
		left []string
		says string
	}{
		{"no digest", nil, cli.ExitTransient, []string{"first"}, "may be the body of another response"},
		{"the right digest", []string{"--sha256sums", sums}, cli.ExitOK, []string{"first", "second"}, "done"},
	} {
		dir := t.TempDir()
		got := fetchctl.With(t.Context(), "", nil, append([]string{"download", "-j", "1", "-d", dir, srv.URL + "/first", srv.URL + "/second"}, row.args...)...)
		if got.Code != row.code || !strings.Contains(got.Err, row.says) {
			t.Errorf("%s: exit status %d, want %d and %q\n%s", row.name, got.Code, row.code, row.says, got.Err)
		}
		only(t, dir, row.left...)
	}
}

// TestDownloadKeepsCoding checks that a file is saved as it was sent, although it is in a content coding that
// was not asked for, also if it breaks off.
func TestDownloadKeepsCoding(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"200:size=9000,coding=gzip", "200:size=9000,coding=br", "200:size=9000,coding=zstd", "200:size=9000,coding=deflate",
		"200:size=9000,coding-lie=gzip", "200:size=9000,coding-lie=compress", "200:size=900000,coding=gzip,etag=%22v%22,range,cut=100000/200:size=900000,coding=gzip,etag=%22v%22,range"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), t.TempDir()
			whole := script[strings.LastIndex(script, "/")+1:]
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.URL("http", "/s/plain/"+whole), nil)
			clitest.Must(t, err)
			resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
			clitest.Must(t, err)
			defer resp.Body.Close()
			sent, err := io.ReadAll(resp.Body)
			clitest.Must(t, err)
			sums := filepath.Join(t.TempDir(), "sums")
			clitest.Must(t, os.WriteFile(sums, fmt.Appendf(nil, "%x  src.tar.gz\n", sha256.Sum256(sent)), 0o600))
			got := listed(t, o, dir, "{O}/k/"+script+" src.tar.gz\n", "--sha256sums", sums)
			if got.Code != cli.ExitOK {
				t.Errorf("exit status %d, want 0\n%s", got.Code, got.Err)
			}
			clitest.File(t, filepath.Join(dir, "src.tar.gz"), sent)
			only(t, dir, "src.tar.gz")
		})
	}
}

// TestDownloadAnswers checks that each flag of wget or curl that download does not have says what to use instead.
func TestDownloadAnswers(t *testing.T) {
	t.Parallel()
	n := 0
	for flag, answer := range reflex.DownloadAnswers() {
		got := fetchctl.Run(t, "download", "-i", "missing", flag)
		want := "fetchctl: " + flag + ": there is no such flag: " + answer + "\n"
		switch {
		case got.Code == cli.ExitUsage && got.Err == want:
			n++
		case strings.Contains(got.Err, "no such flag") || strings.Contains(got.Err, "unknown flag"):
			t.Errorf("%s: exit status %d, %q, want %q", flag, got.Code, got.Err, want)
		}
	}
	if n < 100 {
		t.Errorf("%d flags are answered, want 100 or more", n)
	}
}
