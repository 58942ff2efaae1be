package har_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/cmd/fetchctl/har"
	"fetchd/cmd/fetchctl/har/hartest"
	"fetchd/cmd/fetchctl/timeline"
	"fetchd/cmd/fetchctl/timeline/timelinetest"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/need"
)

// flaky is the archive of a fetch with fixed times.
func flaky(t *testing.T, o har.Options) []byte {
	t.Helper()
	messages, err := timelinetest.Flaky()
	if err != nil {
		t.Fatal(err)
	}
	return marshal(t, messages, o)
}

func marshal(t *testing.T, messages []*pb.FetchEvent, o har.Options) []byte {
	t.Helper()
	r := &timeline.Recorder{BodyLimit: 1 << 10}
	for _, m := range messages {
		r.Take(m)
	}
	data, err := har.Marshal(r.Fetch(0), o)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	if err := hartest.Check(data); err != nil {
		t.Errorf("Check of what Marshal wrote: %v", err)
	}
	return data
}

// The whole archive, as a file that a reader can look at. UPDATE=1 writes it anew.
func TestGolden(t *testing.T) {
	const name = "testdata/flaky.har"
	got := flaky(t, har.Options{Version: "v1", Request: timelinetest.Request()})
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Nothing secret is written, unless it is asked for; what names no one is.
func TestSecrets(t *testing.T) {
	messages, err := timelinetest.Flaky()
	if err != nil {
		t.Fatal(err)
	}
	careful := string(marshal(t, messages, har.Options{Request: timelinetest.Request()}))
	if strings.Contains(careful, "hush") {
		t.Errorf("a secret is written:\n%s", careful)
	}
	open := string(marshal(t, messages, har.Options{Request: timelinetest.Request(), Secrets: true}))
	if strings.Contains(open, har.Redacted) || !strings.Contains(open, "Bearer hush") || !strings.Contains(open, "session=hush") {
		t.Error("something is left out though secrets are asked for")
	}
	for _, row := range []struct {
		name   string
		hidden bool
	}{
		{"Authorization", true}, {"COOKIE", true}, {"Proxy-Authorization", true}, {"X-Api-Key", true}, {"Idempotency-Key", true},
		{"X-Auth-Token", true}, {"Accept", false}, {"user-agent", false}, {"If-None-Match", false}, {"Range", false},
	} {
		asked := &pb.FetchRequest{Url: timelinetest.Request().GetUrl(), Headers: []*pb.Header{{Name: row.name, Value: "v4lue"}}}
		if got := string(marshal(t, messages, har.Options{Request: asked})); strings.Contains(got, "v4lue") == row.hidden {
			t.Errorf("request header %s: hidden is not %v", row.name, row.hidden)
		}
	}
	for _, row := range []struct {
		name   string
		hidden bool
	}{
		{"Set-Cookie", true}, {"set-cookie2", true}, {"Proxy-Authenticate", true}, {"Authentication-Info", true},
		{"Retry-After", false}, {"WWW-Authenticate", false}, {"Content-Type", false},
	} {
		m := []*pb.FetchEvent{messages[0], {Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{Attempt: 1,
			Response: &pb.HttpResponse{StatusCode: 200, Headers: []*pb.Header{{Name: row.name, Value: "v4lue"}}}}}}}
		if got := string(marshal(t, m, har.Options{})); strings.Contains(got, "v4lue") == row.hidden {
			t.Errorf("response header %s: hidden is not %v", row.name, row.hidden)
		}
	}
}

// parsed is what the tests read of an archive.
type parsed struct {
	Log struct {
		Comment string
		Pages   []struct{ Comment, Title string }
		Entries []struct {
			Pageref         string
			StartedDateTime time.Time
			Request         struct {
				Method, Comment string
				Headers         []struct{ Name, Value string }
				PostData        *struct{ Text, MimeType string }
				BodySize        int
			}
			Response struct {
				Status  int
				Content struct{ Text, Encoding, Comment string }
			}
			Unfinished bool `json:"_unfinished"`
		}
	}
}

func parse(t *testing.T, data []byte) parsed {
	t.Helper()
	var p parsed
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Bodies are written when they are asked for and kept: text as it is, else in
// base64.
func TestBodies(t *testing.T) {
	if p := parse(t, flaky(t, har.Options{})); p.Log.Entries[4].Response.Content.Text != "" {
		t.Error("a body is written without the option for it")
	}
	if got := parse(t, flaky(t, har.Options{Bodies: true})).Log.Entries[4].Response.Content; got.Text != "<p>hi</p>" || got.Encoding != "" {
		t.Errorf("content %+v, want the body as text", got)
	}
	for _, row := range []struct {
		name, data, text, encoding, comment string
	}{
		{"binary", "\xff\x00", "/wA=", "base64", ""},
		{"too long to be kept", strings.Repeat("x", 2<<10), "", "", "the body was not kept"},
	} {
		m := []*pb.FetchEvent{admitted(), {Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Attempt: 1, Data: []byte(row.data)}}}}
		got := parse(t, marshal(t, m, har.Options{Bodies: true})).Log.Entries[0].Response.Content
		if got.Text != row.text || got.Encoding != row.encoding || got.Comment != row.comment {
			t.Errorf("%s: content %+v", row.name, got)
		}
	}
}

func admitted() *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_Admitted{Admitted: &pb.Admitted{StartTime: timestamppb.New(timelinetest.Start()),
		EffectiveRequest: &pb.FetchRequest{Url: "http://h/", Method: "POST"}}}}
}

// A request's body is that of the hops that keep the method; its headers are
// told till the chain leaves the origin.
func TestRequests(t *testing.T) {
	hops := func(next string, method string) []*pb.FetchEvent {
		return []*pb.FetchEvent{admitted(), {Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: 1, Hops: []*pb.Hop{
			{Url: "http://h/", Method: "POST", StatusCode: 302, LocationUrl: next}, {Url: next, Method: method, StatusCode: 200},
			{Url: "http://h/back", Method: method, StatusCode: 200}}}}}}
	}
	asked := &pb.FetchRequest{Url: "http://h:80/", Method: "POST", Body: []byte("a=b"), Headers: []*pb.Header{
		{Name: "Content-Type", Value: "text/x"}, {Name: "Accept", Value: "a/b"}}}
	for _, row := range []struct {
		name, next, method string
		headers, body      [3]int
		comment            bool
	}{
		{"same origin, POST", "http://H/2", "POST", [3]int{2, 2, 2}, [3]int{3, 3, 3}, false},
		{"same origin, GET", "http://h/2", "GET", [3]int{2, 1, 1}, [3]int{3, 0, 0}, false},
		{"another port and back", "http://h:81/", "POST", [3]int{2, 0, 0}, [3]int{3, -1, -1}, true},
		{"another scheme and back", "https://h/", "GET", [3]int{2, 0, 0}, [3]int{3, -1, -1}, true},
	} {
		p := parse(t, marshal(t, hops(row.next, row.method), har.Options{Request: asked, Bodies: true}))
		for i, e := range p.Log.Entries {
			r := e.Request
			if len(r.Headers) != row.headers[i] || r.BodySize != row.body[i] || (r.PostData != nil) != (row.body[i] > 0) || (r.Comment != "") != (row.comment && i > 0) {
				t.Errorf("%s: request of hop %d: %+v", row.name, i+1, r)
			}
		}
	}
	if p := parse(t, marshal(t, hops("http://h/2", "POST"), har.Options{Request: asked})); p.Log.Entries[0].Request.PostData != nil {
		t.Error("the request's body is written without the option for it")
	}
}

// Of an attempt that begins at a failed hop it is not told what went before.
func TestFailedHopAgain(t *testing.T) {
	finished := func(n int32, start pb.RetryStart) *pb.FetchEvent {
		return &pb.FetchEvent{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: n,
			Hops: []*pb.Hop{{Url: "http://h/", Method: "POST"}}, RetryDecision: &pb.RetryDecision{Next: &pb.RetryDecision_Retry{Retry: &pb.Retry{Start: start}}}}}}
	}
	asked := &pb.FetchRequest{Url: "http://h/", Method: "POST", Headers: []*pb.Header{{Name: "Accept", Value: "a/b"}}}
	for start, want := range map[pb.RetryStart]int{pb.RetryStart_RETRY_START_FAILED_HOP: 0, pb.RetryStart_RETRY_START_FIRST_URL: 1} {
		p := parse(t, marshal(t, []*pb.FetchEvent{admitted(), finished(1, start), finished(2, 0)}, har.Options{Request: asked}))
		if first, second := len(p.Log.Entries[0].Request.Headers), len(p.Log.Entries[1].Request.Headers); first != 1 || second != want {
			t.Errorf("%v: %d and %d headers, want 1 and %d", start, first, second, want)
		}
	}
}

// A record that ends early is an archive too.
func TestStalled(t *testing.T) {
	messages, err := timelinetest.Stalled()
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, marshal(t, messages, har.Options{}))
	if p.Log.Comment == "" || len(p.Log.Pages) != 1 || len(p.Log.Entries) != 2 || p.Log.Pages[0].Comment != "in flight when the record ended" {
		t.Fatalf("archive %+v", p)
	}
	if p.Log.Entries[0].Unfinished || !p.Log.Entries[1].Unfinished || p.Log.Entries[1].Response.Status != 0 {
		t.Errorf("unfinished: %v, %v; want the second alone", p.Log.Entries[0].Unfinished, p.Log.Entries[1].Unfinished)
	}
	if p = parse(t, marshal(t, messages[:1], har.Options{})); len(p.Log.Pages) != 0 || len(p.Log.Entries) != 0 {
		t.Errorf("nothing was tried, but the archive has %+v", p)
	}
}

func TestNoStart(t *testing.T) {
	if data, err := har.Marshal(new(timeline.Recorder).Fetch(0), har.Options{}); !errors.Is(err, har.ErrNoStart) || data != nil {
		t.Errorf("Marshal of nothing: %q, %v; want ErrNoStart", data, err)
	}
}

// TestOtherReader shows that another implementation of the specification's schema agrees.
// FETCHD_NODE_MODULES is the folder node_modules of test/browser/package-lock.json.
func TestOtherReader(t *testing.T) {
	need.Long(t)
	modules := os.Getenv("FETCHD_NODE_MODULES")
	if modules == "" {
		need.Missing(t, "run .ci/run console", "FETCHD_NODE_MODULES is not set")
	}
	const script = `
		const validate = require('har-validator');
		const data = JSON.parse(require('fs').readFileSync(0, 'utf8'));
		validate.har(data).then(() => console.log('valid'), e => { console.log(JSON.stringify(e.errors)); process.exit(1) });`
	whole := flaky(t, har.Options{Request: timelinetest.Request(), Bodies: true, Secrets: true})
	for _, row := range []struct {
		name, data string
		good       bool
	}{
		{"as it is", string(whole), true},
		{"without a version", strings.Replace(string(whole), `"version": "1.2"`, `"_version": "1.2"`, 1), false},
	} {
		cmd := exec.CommandContext(t.Context(), need.Program(t, "node", "nodejs"), "-e", script)
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		cmd.Stdin = strings.NewReader(row.data)
		if out, err := cmd.CombinedOutput(); (err == nil) != row.good {
			t.Errorf("%s: har-validator: %v\n%s", row.name, err, out)
		}
	}
}
