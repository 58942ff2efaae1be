package normal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"fetchd/frontier/normal"
	"fetchd/test/need"
)

// The tests in this file read the URL test data of github.com/web-platform-tests/wpt from the folder
// $FETCHD_TEST_SETS. docs/frontier.md says where to get them. Any difference without
// a known reason fails.

// webPlatformCases reads a file of cases, and skips the test if there is no folder.
func webPlatformCases[T any](t *testing.T, name string) []T {
	t.Helper()
	folder := os.Getenv("FETCHD_TEST_SETS")
	if folder == "" {
		need.Request(t, "set FETCHD_TEST_SETS as docs/frontier.md says", "it reads public test sets")
	}
	data, err := os.ReadFile(filepath.Join(folder, "wpt", "url", "resources", name))
	if err != nil {
		t.Fatal(err)
	}
	var lines []json.RawMessage
	if err := json.Unmarshal(data, &lines); err != nil {
		t.Fatal(err)
	}
	var cases []T
	for _, line := range lines {
		var c T
		if line[0] == '"' { // a comment
			continue
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		t.Fatal("no cases were read")
	}
	return cases
}

// tally counts the cases of a set.
type tally struct {
	same    int            // the standard's result
	both    int            // no URL for both
	reasons map[string]int // differences
}

func newTally() tally { return tally{reasons: map[string]int{}} }

func (n *tally) log(t *testing.T, set string) {
	t.Helper()
	t.Logf("%s: %d equal, %d invalid for both; differences: %v", set, n.same, n.both, n.reasons)
}

// compare counts one case. href is the standard's result, or empty if in is not a URL.
func (n *tally) compare(t *testing.T, resolve func(string) (string, error), in, href string) {
	t.Helper()
	got, err := resolve(in)
	reason := ""
	switch {
	case err != nil && href == "":
		n.both++
		return
	case err == nil && got == href:
		n.same++
		return
	case err != nil:
		reason = rejected(in, href, err)
	case href != "":
		reason = rewritten(got, href)
	}
	if reason == "" {
		t.Errorf("%q is %q, %v; the standard has %q", in, got, err, href)
	}
	n.reasons[reason]++
}

var longNumber = regexp.MustCompile(`[./][0-9]{19,}[a-z]\.?/`)

// rejected says why a URL of the standard is rejected on purpose.
func rejected(in, href string, err error) string {
	scheme, host, _ := strings.Cut(href, ":")
	if scheme != "http" && scheme != "https" {
		return "another scheme"
	}
	host, _, _ = strings.Cut(strings.TrimPrefix(host, "//"), "/")
	trimmed := strings.TrimSuffix(host, ".")
	tooLong := func(label string) bool { return len(label) > 63 }
	switch labels := strings.Split(trimmed, "."); {
	case slices.Contains(labels, ""):
		return "an empty label"
	case len(trimmed) > 253 || slices.ContainsFunc(labels, tooLong):
		return "longer than DNS allows"
	case strings.ContainsAny(host, "{}`"):
		return "net/url rejects the host"
	case longNumber.MatchString(href):
		return "the parser takes a label of 19 digits and a letter for a number"
	case errors.Is(err, normal.ErrHost) && strings.Contains(strings.ToLower(in), "xn--"):
		return "Punycode that IDNA rejects"
	case errors.Is(err, normal.ErrHost) && strings.ContainsFunc(in, func(r rune) bool { return r > unicode.MaxASCII }):
		return "characters that newer tables of IDNA allow"
	}
	return ""
}

// rewritten says why the normal form of a URL is not the standard's.
func rewritten(got, href string) string {
	if form, err := normal.NormalizeURL(href); err != nil || form != got {
		return ""
	}
	return "rewritten by rule F1"
}

func TestWebPlatformURLs(t *testing.T) {
	absolute, relative := newTally(), newTally()
	for _, c := range webPlatformCases[struct {
		Input string
		Base  *string
		Href  string
	}](t, "urltestdata.json") {
		if c.Base == nil || *c.Base == "about:blank" {
			absolute.compare(t, normal.NormalizeURL, c.Input, c.Href)
		} else if base, err := normal.NewBase(*c.Base); err == nil { // the others are no pages
			relative.compare(t, base.Resolve, c.Input, c.Href)
		}
	}
	absolute.log(t, "absolute")
	relative.log(t, "relative")
}

func TestWebPlatformHosts(t *testing.T) {
	for _, file := range []string{"toascii.json", "IdnaTestV2.json"} {
		n := newTally()
		for _, c := range webPlatformCases[struct{ Input, Output string }](t, file) {
			if c.Input == "" { // https:///x has the host x
				continue
			}
			href := ""
			if c.Output != "" {
				href = "https://" + c.Output + "/x"
			}
			n.compare(t, normal.NormalizeURL, "https://"+c.Input+"/x", href)
		}
		n.log(t, file)
	}
}
