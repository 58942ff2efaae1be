//go:build linux

package warc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fetchd/test/need"
	"fetchd/test/rig"
)

// differences are all differences between the fields of wget's records and ours, by the type of the
// record and the field.
var differences = map[string]string{
	"request WARC-Target-URI: another form":  "wget puts the URI between `<` and `>`, as WARC/1.0 says",
	"response WARC-Target-URI: another form": "wget puts the URI between `<` and `>`, as WARC/1.0 says",
	"request WARC-Date: another form":        "wget writes whole seconds, the only precision of WARC/1.0",
	"response WARC-Date: another form":       "wget writes whole seconds, the only precision of WARC/1.0",
	"request WARC-Concurrent-To: only ours":  "both records name each other here; wget's response names its request",
	"request WARC-Protocol: only ours":       "a proposed field, which wget does not know",
	"response WARC-Protocol: only ours":      "a proposed field, which wget does not know",
	"request WARC-Warcinfo-ID: only wget's":  "the warcinfo record is the first one of the file, and its identifier in each record costs space",
	"response WARC-Warcinfo-ID: only wget's": "the warcinfo record is the first one of the file, and its identifier in each record costs space",
}

// TestPeers fetches the same pages with fetchd, wget and curl. The bodies must be equal byte for byte, and
// wget's records must have the same fields as ours, except for the differences. The outcomes name our records.
func TestPeers(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 3*time.Minute)
	for _, program := range []string{"wget", "curl"} {
		need.Program(t, program, program)
	}
	o, dir, c := rig.Origin(t), t.TempDir(), newChecker(t)
	var urls []string
	for i, step := range []string{
		"200:size=1000", "200:size=0", "200:size=300000", "200:size=5000,chunked", "200:size=100000,chunked,trailers", "200:size=2000,no-length",
		"200:size=5000,coding=gzip", "200:size=5000,coding=br,chunked", "404:body=gone", "410:size=70000", "302:to=%2Fs%2Fto%2F200,size=500",
		"200:head-size=30000,size=10", "200:set-cookie=a%3Db,header=X-Odd%3D%20%20two%20%20spaces%20,size=10", "200:bomb=200000", "204",
	} {
		urls = append(urls, o.URL("http", fmt.Sprintf("/cycle/%d/%s", i, step)))
	}

	s := start(ctx, t, entry{URL: "warc+file://" + dir}, "--egress-allow-port", portOf(t, o.Addr("http")))
	outcomes := s.fetchAll(ctx, urls)
	s.Stop()
	records := c.read(ctx, t, wholeFiles(t, dir)...)
	wantNamed(t, outcomes, records)
	ours := responses(records)

	file := filepath.Join(t.TempDir(), "wget")
	_, _, _ = run(ctx, t, "wget", append([]string{"--quiet", "--tries=1", "--max-redirect=0", "--no-warc-keep-log", "--output-document=/dev/null", "--warc-file=" + file}, urls...)...) // it fails after a 404
	records, faults := c.run(ctx, t, "--wget", file+".warc.gz")
	if faults != "" {
		t.Errorf("check.mjs --wget: %.2000s", faults)
	}
	theirs := responses(records)
	found := make(map[string]bool)
	for _, u := range urls {
		x, ok := ours[u]
		if !ok {
			t.Errorf("%s was not recorded", u)
			continue
		}
		wantCurl(ctx, t, u, x.response)
		if strings.HasSuffix(u, "/204") { // wget records no response without a body
			continue
		}
		y, ok := theirs[u]
		if !ok {
			t.Errorf("wget has not recorded %s", u)
			continue
		}
		if size := x.response.PayloadSize; size != y.response.PayloadSize && !strings.Contains(u, "trailers") { // wget records no trailer
			t.Errorf("%s: a payload of %d bytes, wget records %d", u, size, y.response.PayloadSize)
		}
		if x.response.PayloadSize == y.response.PayloadSize && x.response.field("WARC-Payload-Digest") != y.response.field("WARC-Payload-Digest") {
			t.Errorf("%s: wget's payload has another digest", u)
		}
		if x.response.BodySHA256 != y.response.BodySHA256 || x.response.Start != y.response.Start {
			t.Errorf("%s: %s with %d bytes, wget records %s with %d", u, x.response.Start, x.response.BodySize, y.response.Start, y.response.BodySize)
		}
		compare(found, x.request, y.request)
		compare(found, x.response, y.response)
	}
	for d := range found {
		if _, ok := differences[d]; !ok {
			t.Errorf("a difference that is not in the list: %s", d)
		}
	}
	for d := range differences {
		if !found[d] {
			t.Errorf("a difference that is in the list and was not found: %s", d)
		}
	}
}

// exchange is a request with its response.
type exchange struct{ request, response record }

// responses returns the exchanges by their URL, each of which was fetched once.
func responses(records []record) map[string]exchange {
	found := make(map[string]exchange)
	for _, r := range records {
		x := found[r.URI]
		switch r.Type {
		case "request":
			x.request = r
		case "response":
			x.response = r
		default:
			continue
		}
		found[r.URI] = x
	}
	return found
}

// wantCurl compares a payload with what curl receives.
func wantCurl(ctx context.Context, t *testing.T, url string, r record) {
	t.Helper()
	body, faults, err := run(ctx, t, "curl", "--silent", "--show-error", "--path-as-is", url)
	if err != nil {
		t.Errorf("curl %s: %v: %s", url, err, faults)
	}
	sum := sha256.Sum256([]byte(body))
	if got := hex.EncodeToString(sum[:]); got != r.BodySHA256 {
		t.Errorf("%s: curl receives %d bytes, and the record has %d others", url, len(body), r.BodySize)
	}
}

// compare adds the differences between two records.
func compare(found map[string]bool, ours, theirs record) {
	fields := func(r record) map[string]string {
		all := make(map[string]string)
		for _, f := range r.Fields {
			all[f[0]] = f[1]
		}
		return all
	}
	x, y := fields(ours), fields(theirs)
	names := maps.Clone(x)
	maps.Copy(names, y)
	delete(names, "Content-Length") // the requests have other fields
	for name := range names {
		_, we := x[name]
		_, they := y[name]
		switch {
		case !they:
			found[ours.Type+" "+name+": only ours"] = true
		case !we:
			found[ours.Type+" "+name+": only wget's"] = true
		case form(x[name]) != form(y[name]):
			found[ours.Type+" "+name+": another form"] = true
		}
	}
}

// form returns the form of a value: equal for two identifiers, dates or digests, although they
// differ.
func form(value string) string {
	switch {
	case strings.HasPrefix(value, "<urn:uuid:"):
		return fmt.Sprintf("identifier of %d", len(value))
	case strings.HasPrefix(value, "sha1:") || strings.HasPrefix(value, "sha256:"):
		name, sum, _ := strings.Cut(value, ":")
		return fmt.Sprintf("%s of %d, %t", name, len(sum), sum == strings.ToUpper(sum))
	}
	if date, err := time.Parse(time.RFC3339Nano, value); err == nil && date.Year() > 2000 {
		return fmt.Sprintf("date of %d", len(value))
	}
	return value
}
