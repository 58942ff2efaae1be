package kit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance"
	"fetchd/conformance/kit"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/need"
)

func load(t *testing.T) []*kit.Scenario {
	t.Helper()
	all, err := kit.Load()
	must.Succeed(t, err)
	return all
}

func TestScenariosAreSound(t *testing.T) {
	t.Parallel()
	all := load(t)
	if len(all) < 150 {
		t.Errorf("%d scenarios, want at least 150", len(all))
	}
	rule := regexp.MustCompile(`^[A-Z][0-9]+$`)
	names := map[string]bool{}
	clients := 0
	for _, s := range all {
		if names[s.Key()] {
			t.Errorf("%s: %q: another scenario has the same key", s.File, s.Name)
		}
		names[s.Key()] = true
		if s.Story == "" || s.Source == "" || len(s.Rules) == 0 {
			t.Errorf("%s: %q: story, source or rules are missing", s.File, s.Name)
		}
		for _, r := range s.Rules {
			if !rule.MatchString(r) {
				t.Errorf("%s: %q: %q is not a rule", s.File, s.Name, r)
			}
		}
		if s.Demo != (len(s.Breaks) > 0) {
			t.Errorf("%s: %q: demo is %t, but there are %d breakages", s.File, s.Name, s.Demo, len(s.Breaks))
		}
		for _, r := range s.BreakRules() {
			if !slices.Contains(s.Rules, r) {
				t.Errorf("%s: %q: it breaks %s, which is not among its rules", s.File, s.Name, r)
			}
		}
		if s.Client != nil {
			clients++
		}
	}
	if clients < 50 {
		t.Errorf("%d scenarios judge a client, want at least 50", clients)
	}
}

// A path outside the origin's grammar would test nothing.
func TestPathsAreInTheGrammar(t *testing.T) {
	t.Parallel()
	o := origin.New(origin.Config{})
	for _, s := range load(t) {
		if why := grammar(o, s.URL(o)); why != "" {
			t.Errorf("%q: %s", s.Name, why)
		}
		for _, rule := range s.BreakRules() {
			for _, b := range kit.Broken([]*kit.Scenario{s}, rule) {
				if why := grammar(o, b.URL(o)); why != "" || b.Changed == "" {
					t.Errorf("%q without %s: %s; changed %q", s.Name, rule, why, b.Changed)
				}
			}
		}
	}
}

// grammar returns the origin's objection to a URL, or "". The context of its request has ended, so
// that no step waits.
func grammar(o *origin.Origin, url string) string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error() //nolint:forbidigo // shown, not compared
	}
	w := &head{header: http.Header{}}
	func() {
		defer func() { _ = recover() }() // a fault of the wire aborts the handler
		o.ServeHTTP(w, req)
	}()
	if w.status == http.StatusBadRequest {
		return w.header.Get("Origin-Error")
	}
	return ""
}

// head is a ResponseWriter that keeps the head only.
type head struct {
	header http.Header
	status int
}

func (w *head) Header() http.Header         { return w.header }
func (w *head) WriteHeader(status int)      { w.status = status }
func (w *head) Write(p []byte) (int, error) { return len(p), nil }

// script is a service that answers with given messages.
type script struct {
	pb.FetchServiceClient
	messages []*pb.FetchResponse
	err      error
}

func (c script) Fetch(context.Context, *pb.FetchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.FetchResponse], error) {
	return &stream{messages: c.messages, end: c.err}, nil
}

type stream struct {
	grpc.ClientStream
	messages []*pb.FetchResponse
	end      error
}

func (s *stream) Recv() (*pb.FetchResponse, error) {
	if len(s.messages) == 0 {
		if s.end != nil {
			return nil, s.end
		}
		return nil, io.EOF
	}
	m := s.messages[0]
	s.messages = s.messages[1:]
	return m, nil
}

// log is an origin with given requests.
type log struct {
	*origin.Origin
	requests []origin.Request
}

func (l log) Requests(string) []origin.Request { return l.requests }

// answer has correct events and requests for "503 then 200".
type answer struct {
	events   []*pb.FetchEvent
	pack     func([]*pb.FetchEvent) []*pb.FetchResponse // nil: an event in each message
	requests []origin.Request
	err      error
}

// messages returns the messages that have the events.
func (a *answer) messages() []*pb.FetchResponse {
	if a.pack != nil {
		return a.pack(a.events)
	}
	var messages []*pb.FetchResponse
	for _, e := range a.events {
		messages = append(messages, &pb.FetchResponse{Events: []*pb.FetchEvent{e}})
	}
	return messages
}

func (a *answer) finished(n int) *pb.AttemptFinished {
	for _, m := range a.events {
		if f := m.GetAttemptFinished(); f.GetAttempt() == int32(n) {
			return f
		}
	}
	return nil
}

func (a *answer) outcome() *pb.FetchOutcome { return a.events[len(a.events)-1].GetOutcome() }

const firstWait = 200 * time.Millisecond

func honest(o *origin.Origin, s *kit.Scenario) *answer {
	started := time.Now()
	retry := &pb.RetryDecision{Rule: "W1", Next: &pb.RetryDecision_Retry{Retry: &pb.Retry{Attempt: 2, Delay: durationpb.New(firstWait),
		DelaySource: pb.DelaySource_DELAY_SOURCE_BACKOFF, Start: pb.RetryStart_RETRY_START_FIRST_URL}}}
	body := o.Body(2000)
	target, _ := url.Parse(s.URL(o))
	hops := []*pb.Hop{{Method: http.MethodGet, Url: s.URL(o)}}
	a := &answer{
		events: []*pb.FetchEvent{
			{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: 1, Hops: hops, RetryDecision: retry,
				Response: &pb.HttpResponse{StatusCode: 503}}}},
			{Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{Attempt: 2, Url: s.URL(o), Response: &pb.HttpResponse{StatusCode: 200}}}},
			{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Data: body[:500]}}},
			{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Data: body[500:], OffsetBytes: 500}}},
			{Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Attempt: 2, Hops: hops,
				Response: &pb.HttpResponse{StatusCode: 200}}}},
			{Event: &pb.FetchEvent_Outcome{Outcome: &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, DecisionRule: "H0",
				Response: &pb.HttpResponse{StatusCode: 200}, BodySummary: &pb.BodySummary{LengthKnown: true, SizeBytes: int64(len(body))}, AttemptCount: 2, ExchangeCount: 2, FinalUrl: s.URL(o)}}},
		},
		requests: []origin.Request{{Time: started}, {Time: started.Add(firstWait)}},
	}
	for i := range a.requests {
		a.requests[i].Method, a.requests[i].Path = http.MethodGet, target.EscapedPath()
	}
	for i, m := range a.events {
		m.Sequence = int64(i + 1)
	}
	return a
}

// TestJudgeNoticesLies checks that reports are compared with the origin's log and with the contract,
// whatever the scenario expects.
func TestJudgeNoticesLies(t *testing.T) {
	t.Parallel()
	all := load(t)
	s := all[slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == "503 then 200" })]
	s.Want.Answers = []int32{503, 200}
	const hops, before = "reported hops, and requests at the origin", "URL before the body, and final URL"
	for _, tt := range []struct {
		name   string
		change func(*answer)
		want   []string
	}{
		{"nothing", func(*answer) {}, nil},
		{"the call failed", func(a *answer) { a.err = errors.New("down") }, []string{"the call"}},
		{"no outcome", func(a *answer) { a.events = a.events[:5] }, []string{"the stream"}},
		{"an event after the outcome", func(a *answer) { a.events = append(a.events, &pb.FetchEvent{Sequence: 7}) }, []string{"the stream"}},
		{"an event after the outcome, in its message", func(a *answer) { a.events = append(a.events, &pb.FetchEvent{Sequence: 7}); a.pack = together }, []string{"the stream"}},
		{"all events in a message", func(a *answer) { a.pack = together }, nil},
		{"an empty message", func(a *answer) {
			a.pack = func(events []*pb.FetchEvent) []*pb.FetchResponse {
				return append([]*pb.FetchResponse{{}}, together(events)...)
			}
		}, []string{"the stream"}},
		{"events in the wrong order", func(a *answer) { a.events[2], a.events[1], a.pack = a.events[1], a.events[2], together }, []string{"the stream"}},
		{"an event that was lost", func(a *answer) { a.events[5].Sequence = 7 }, []string{"the stream"}},
		{"a hole in the body", func(a *answer) { a.events[3].GetBodyChunk().OffsetBytes = 501 }, []string{"the stream"}},
		{"a body in chunks and in the outcome", func(a *answer) {
			a.outcome().Body = &pb.FetchOutcome_InlineBody{InlineBody: slices.Concat(a.events[2].GetBodyChunk().GetData(), a.events[3].GetBodyChunk().GetData())}
		}, []string{"the stream"}},
		{"a request that was not reported", func(a *answer) { a.outcome().ExchangeCount = 1 }, []string{"reported exchanges, and requests at the origin"}},
		{"a request too many", func(a *answer) {
			a.requests = append(a.requests, a.requests[1])
			a.outcome().ExchangeCount = 3
		}, []string{"requests at the origin", hops}},
		{"a request for another path", func(a *answer) { a.requests[1].Path = "/s/other" }, []string{hops}},
		{"a request with another method", func(a *answer) { a.requests[1].Method = http.MethodPut }, []string{hops}},
		{"a hop that the origin did not see", func(a *answer) {
			f := a.finished(2)
			f.Hops = append(slices.Clone(f.Hops), f.Hops[0])
		}, []string{hops}},
		{"a hop that had no connection", func(a *answer) {
			f := a.finished(1)
			f.Hops = append(slices.Clone(f.Hops), f.Hops[0])
			f.Error = failedIn(pb.Phase_PHASE_CONNECT)
		}, nil},
		{"a hop that had a connection", func(a *answer) {
			f := a.finished(1)
			f.Hops = append(slices.Clone(f.Hops), f.Hops[0])
			f.Error = failedIn(pb.Phase_PHASE_PROCESSING)
		}, []string{hops}},
		{"a retry that came early", func(a *answer) { a.requests[1].Time = a.requests[0].Time.Add(firstWait - 1) }, []string{"wait before attempt 2"}},
		{"a retry that came late", func(a *answer) { a.requests[1].Time = a.requests[0].Time.Add(time.Hour) }, nil},
		{"an attempt that was not reported", func(a *answer) {
			a.events = slices.Delete(a.events, 4, 5)
			a.events[4].Sequence = 5
		}, []string{"attempts reported when they ended", "statuses of the attempts", hops}},
		{"another delay", func(a *answer) { a.finished(1).RetryDecision.GetRetry().Delay = durationpb.New(0) }, []string{"waits"}},
		{"bytes that the origin did not send", func(a *answer) { a.events[2].GetBodyChunk().Data = make([]byte, 500) }, []string{"body"}},
		{"a wrong digest", func(a *answer) { a.outcome().BodySummary.Sha256 = "00" }, []string{"reported digest"}},
		{"a length that is not known", func(a *answer) { a.outcome().BodySummary.LengthKnown = false }, []string{"length of the body known"}},
		{"a part", func(a *answer) { a.outcome().BodySummary.PartialContent = true }, []string{"body that is only a part"}},
		{"an object that was not asked for", func(a *answer) {
			a.outcome().Body = &pb.FetchOutcome_StoredObject{StoredObject: &pb.StoredObject{SizeBytes: 5}}
		}, []string{"bytes of the stored object"}},
		{"an object with another digest", func(a *answer) {
			a.outcome().Body = &pb.FetchOutcome_StoredObject{StoredObject: &pb.StoredObject{Sha256: "00"}}
		}, []string{"digest of the stored object"}},
		{"another URL", func(a *answer) { a.outcome().FinalUrl = "http://elsewhere.test/" }, []string{"final URL", before}},
		{"another URL before the body", func(a *answer) { a.events[1].GetResponseStarted().Url = "" }, []string{before}},
		{"another status", func(a *answer) { a.outcome().Response.StatusCode = 206 }, []string{"status", "status before the body, and in the outcome"}},
		{"another status before the body", func(a *answer) { a.events[1].GetResponseStarted().Response.StatusCode = 206 },
			[]string{"status before the body, and in the outcome"}},
		{"another status of an attempt", func(a *answer) { a.finished(1).Response.StatusCode = 200 }, []string{"statuses of the attempts"}},
		{"another rule", func(a *answer) { a.outcome().DecisionRule = "H7" }, []string{"rule of the outcome"}},
		{"a success with an error", func(a *answer) {
			a.outcome().Error = failedIn(pb.Phase_PHASE_TRANSFER)
			a.outcome().Error.StopReason = pb.StopReason_STOP_REASON_NOT_RETRIED.Enum()
		}, []string{"the stream"}},
		{"no kind", func(a *answer) { a.outcome().Kind = 0 }, []string{"the stream"}},
		{"an error without its class and type", func(a *answer) { a.finished(1).Error = new(pb.FetchError) }, []string{"the stream", "the stream"}},
		{"an error with the phase zero", func(a *answer) { a.finished(1).Error = failedIn(pb.Phase_PHASE_UNSPECIFIED) }, []string{"the stream"}},
		{"a decision for nothing", func(a *answer) { a.finished(2).RetryDecision = &pb.RetryDecision{Rule: "H0"} }, []string{"the stream"}},
		{"a stop without a reason", func(a *answer) {
			a.finished(2).RetryDecision = &pb.RetryDecision{Rule: "H0", Next: new(pb.RetryDecision_StopReason)}
		}, []string{"the stream"}},
		{"a retry without its start", func(a *answer) { a.finished(1).RetryDecision.GetRetry().Start = 0 }, []string{"the stream"}},
		{"a retry without the source of its delay", func(a *answer) { a.finished(1).RetryDecision.GetRetry().DelaySource = 0 }, []string{"the stream", "waits"}},
	} {
		o := origin.New(origin.Config{})
		a := honest(o, s)
		tt.change(a)
		seen := log{o, a.requests}
		rec := s.Perform(t.Context(), script{messages: a.messages(), err: a.err}, seen, nil)
		var got []string
		for _, m := range s.Judge(seen, rec) {
			got = append(got, m.What)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: mismatches (-want +got):\n%s", tt.name, diff)
		}
	}
}

// together puts all events into one message.
func together(events []*pb.FetchEvent) []*pb.FetchResponse {
	return []*pb.FetchResponse{{Events: events}}
}

// failedIn returns an error of a phase.
func failedIn(p pb.Phase) *pb.FetchError {
	return &pb.FetchError{Phase: p.Enum(), ErrorClass: pb.ErrorClass_ERROR_CLASS_INTERNAL, FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT}
}

// TestJudgeClient checks that a client is judged by exit status, requests, gaps and body.
func TestJudgeClient(t *testing.T) {
	t.Parallel()
	all := load(t)
	named := func(name string) *kit.Scenario {
		return all[slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == name })]
	}
	o := origin.New(origin.Config{})
	started := time.Now()
	at := func(offsets ...time.Duration) []origin.Request {
		var requests []origin.Request
		for _, d := range offsets {
			requests = append(requests, origin.Request{Method: http.MethodGet, Time: started.Add(d)})
		}
		return requests
	}
	for _, tt := range []struct {
		name     string
		scenario string
		rec      kit.ClientRecord
		want     []string
	}{
		{"as it must be", "503 then 200", kit.ClientRecord{Body: o.Body(2000), Requests: at(0, time.Second)}, nil},
		{"no retry", "503 then 200", kit.ClientRecord{Exit: 22, Requests: at(0)}, []string{"exit status", "requests"}},
		{"a timer that is a millisecond early", "503 then 200", kit.ClientRecord{Body: o.Body(2000), Requests: at(0, firstWait-time.Millisecond)}, nil},
		{"a wait that is too short", "503 then 200", kit.ClientRecord{Body: o.Body(2000), Requests: at(0, firstWait-3*time.Millisecond)}, []string{"gap 1"}},
		{"no wait", "503 then 200", kit.ClientRecord{Body: o.Body(2000), Requests: at(0, 0)}, []string{"gap 1"}},
		{"wrong bytes", "503 then 200", kit.ClientRecord{Body: o.Body(1999), Requests: at(0, firstWait)}, []string{"body"}},
		{"many attempts", "503 for ever", kit.ClientRecord{Exit: 1, Requests: at(0, time.Second, 2*time.Second, 3*time.Second)}, nil},
		{"one attempt", "503 for ever", kit.ClientRecord{Exit: 1, Requests: at(0)}, []string{"requests"}},
		{"success of a failure", "404", kit.ClientRecord{Requests: at(0)}, []string{"exit status"}},
		{"never ends", "429 with an hour", kit.ClientRecord{Exit: -1, Requests: at(0)}, []string{"end"}},
		{"an expected gap for clients", "429 with a date of today", kit.ClientRecord{Body: o.Body(500), Requests: at(0, 1500*time.Millisecond)}, nil},
	} {
		var got []string
		for _, m := range named(tt.scenario).JudgeClient(o, &tt.rec) {
			got = append(got, m.What)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: mismatches (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestCommand runs programs in an empty folder. A program that exceeds its time is killed.
func TestCommand(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	o := origin.New(origin.Config{})
	all := load(t)
	s := all[slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == "404" })]
	for _, tt := range []struct {
		name, script string
		args         []string
		limit        time.Duration
		want         kit.ClientRecord
	}{
		{"standard output", `echo "$1"`, nil, time.Minute, kit.ClientRecord{Body: []byte(s.URL(o) + "\n")}},
		{"a placeholder for the URL", `echo "$1"`, []string{"<{url}>"}, time.Minute, kit.ClientRecord{Body: []byte("<" + s.URL(o) + ">\n")}},
		{"a file", `echo noise; printf body >"$1"; exit 3`, []string{"{out}"}, time.Minute, kit.ClientRecord{Body: []byte("body"), Exit: 3}},
		{"a file with the authority", `test "$1" = "$ORIGIN_CA" && cat "$1"`, []string{"{ca}", "{url}"}, time.Minute, kit.ClientRecord{Body: []byte("PEM")}},
		{"no file", `exit 0`, []string{"{out}"}, time.Minute, kit.ClientRecord{}},
		{"no end", `exec sleep 1000`, nil, time.Millisecond, kit.ClientRecord{Exit: -1}},
		{"a named pipe", `mkfifo "$1"`, []string{"{out}"}, time.Minute, kit.ClientRecord{}},
		{"a device", `ln -s /dev/zero "$1"`, []string{"{out}"}, time.Minute, kit.ClientRecord{}},
		{"a huge file", `truncate -s 1G "$1"`, []string{"{out}"}, time.Minute, kit.ClientRecord{Body: make([]byte, 16<<20)}},
	} {
		c := &kit.Command{Args: append([]string{shell, "-c", tt.script, "sh"}, tt.args...), Limit: tt.limit}
		must.Succeed(t, c.Trust([]byte("PEM"), t.TempDir()))
		got, err := s.PerformClient(t.Context(), c, o, t.TempDir())
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got.Exit != tt.want.Exit || string(got.Body) != string(tt.want.Body) {
			t.Errorf("%s: exit %d, body %.80q; want %d, %.80q", tt.name, got.Exit, got.Body, tt.want.Exit, tt.want.Body)
		}
	}
}

// TestCommandEndsWithItsChildren checks that no process of a client outlives its run: the end of a named pipe that it
// holds is closed.
func TestCommandEndsWithItsChildren(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	for _, row := range []struct {
		name, script string
		limit        time.Duration
		exit         int
	}{
		{"exits", `exec >/dev/null 2>&1; sleep 1000 3>pipe & exit 0`, time.Minute, 0},
		{"is killed", `exec >/dev/null 2>&1; sleep 1000 3>pipe; exit 0`, 500 * time.Millisecond, -1},
	} {
		folder := t.TempDir()
		must.Succeed(t, syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))
		pipe, err := os.OpenFile(filepath.Join(folder, "pipe"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		must.Succeed(t, err)
		c := &kit.Command{Args: []string{shell, "-c", row.script}, Limit: row.limit}
		if _, exit, err := c.Run(t.Context(), "http://127.0.0.1/", folder); err != nil || exit != row.exit {
			t.Errorf("%s: exit %d, %v; want %d", row.name, exit, err, row.exit)
		}
		must.Succeed(t, pipe.SetReadDeadline(time.Now().Add(10*time.Second)))
		if _, err := io.ReadAll(pipe); err != nil {
			t.Errorf("%s: a child still has the pipe: %v", row.name, err)
		}
		_ = pipe.Close()
	}
}

// TestCommandWithALongVersion checks that little is kept of what a client writes for --version.
func TestCommandWithALongVersion(t *testing.T) {
	t.Parallel()
	c := &kit.Command{Args: []string{need.Program(t, "sh", "dash"), "-c", "head -c 1000000 /dev/zero"}}
	if r, err := c.Describe(t.Context()); err != nil || len(r.Version) > 16<<10 {
		t.Errorf("a version of %d bytes, %v", len(r.Version), err)
	}
}

// TestCommandThatIsRefused checks that HTTP/2 faults do not count for a client without HTTP/2.
func TestCommandThatIsRefused(t *testing.T) {
	t.Parallel()
	shell := need.Program(t, "sh", "dash")
	all := load(t)
	at := slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == "stream reset then 200" })
	done := make(chan struct{})
	close(done)
	for _, tt := range []struct {
		end  origin.End
		want kit.Verdict
	}{
		{origin.EndRefused, kit.NotApplicable},
		{origin.EndBroken, kit.Failed},
	} {
		o := log{origin.New(origin.Config{}), []origin.Request{{End: tt.end, Done: done}}}
		c := &kit.Command{Args: []string{shell, "-c", "exit 1"}}
		got, err := kit.ClientScenarios(t.Context(), c, all[at:at+1], o, 1, func() (string, error) { return t.TempDir(), nil })
		if err != nil || got[0].Verdict != tt.want {
			t.Errorf("%s: verdict %q, error %v; want %q", tt.end, got[0].Verdict, err, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := kit.Report{Results: []kit.Result{
		{Rules: []string{"W2", "H10"}, Verdict: kit.Held},
		{Rules: []string{"H2"}, Verdict: kit.Failed, Wrong: []kit.Mismatch{{What: "a", Want: "b", Got: "c"}}},
		{Rules: []string{"H2"}, Verdict: kit.NotRun},
	}}
	if diff := cmp.Diff([]string{"H2", "H10", "W2"}, r.Rules()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	want := kit.Tally{Held: 1, Failed: 1, Other: 1}
	if got := r.Tally(func(*kit.Result) bool { return true }); got != want || got.Judged() != 2 {
		t.Errorf("tally %+v with %d judged, want %+v with 2", got, got.Judged(), want)
	}
}

// explained is a service whose Explain response can be changed.
type explained struct {
	pb.FetchServiceClient
	change func(*pb.ExplainResponse)
}

func (c explained) Explain(context.Context, *pb.ExplainRequest, ...grpc.CallOption) (*pb.ExplainResponse, error) {
	r := &pb.ExplainResponse{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED.Enum(), Error: failedIn(pb.Phase_PHASE_PROCESSING),
		Next: &pb.ExplainResponse_RetryDecision{RetryDecision: &pb.RetryDecision{Rule: "H6",
			Next: &pb.RetryDecision_StopReason{StopReason: pb.StopReason_STOP_REASON_NOT_RETRIED}}},
		EffectiveRetryPolicy: &pb.RetryPolicy{}}
	r.Error.ClassRule, r.Error.Message, r.Error.Detail, r.Error.Reason = "H6", "any", "any", "any"
	r.Error.RequestState = pb.RequestState_REQUEST_STATE_UNKNOWN
	c.change(r)
	return r, nil
}

func TestExplain(t *testing.T) {
	t.Parallel()
	v := &conformance.Vector{Observation: conformance.Observation{Response: &conformance.Response{Status: 404}},
		Verdict: conformance.Verdict{Outcome: "failed", Failure: &conformance.Failure{Class: "internal", Type: "transient", Rule: "H6"},
			Decision: &conformance.Decision{Rule: "H6", Stop: "not_retried"}}}
	for _, tt := range []struct {
		name   string
		change func(*pb.ExplainResponse)
		want   []string
	}{
		{"as it must be", func(*pb.ExplainResponse) {}, nil},
		{"no kind", func(r *pb.ExplainResponse) { r.Kind = nil }, []string{"kind"}},
		{"the kind zero", func(r *pb.ExplainResponse) { r.Kind = new(pb.OutcomeKind) }, []string{"kind", "unset fields"}},
		{"another rule", func(r *pb.ExplainResponse) { r.Error.ClassRule = "H5" }, []string{"error"}},
		{"a field too many", func(r *pb.ExplainResponse) { r.Error.Retryable = true }, []string{"error"}},
		{"another request state", func(r *pb.ExplainResponse) { r.Error.RequestState = pb.RequestState_REQUEST_STATE_NOT_SENT }, []string{"error"}},
		{"no error", func(r *pb.ExplainResponse) { r.Error = nil }, []string{"error"}},
		{"another decision", func(r *pb.ExplainResponse) { r.GetRetryDecision().Rule = "H5" }, []string{"decision"}},
		{"a decision for nothing", func(r *pb.ExplainResponse) { r.GetRetryDecision().Next = nil }, []string{"decision", "unset fields"}},
		{"no decision", func(r *pb.ExplainResponse) { r.Next = nil }, []string{"decision", "unset fields"}},
		{"a redirect", func(r *pb.ExplainResponse) { r.Next = &pb.ExplainResponse_Redirect{Redirect: &pb.RedirectStep{}} }, []string{"decision", "redirect"}},
	} {
		wrong := kit.Explain(t.Context(), explained{change: tt.change}, v)
		var got []string
		for _, m := range wrong {
			got = append(got, m.What)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: mismatches (-want +got):\n%s", tt.name, diff)
		}
	}
}
