package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// manyStream is a call of FetchMany with the answers received so far.
type manyStream struct {
	*rig
	pb.FetchService_FetchManyClient
	outcomes map[string][]*pb.FetchOutcome
	events   map[string][]string
	begins   map[string][]int64 // offsets in ResponseStarted
	ends     map[string]int64   // of the last chunks
	bodies   map[string][]byte  // from chunks
	discard  bool               // bodies are not kept
	onAnswer func(*pb.TaskEvent)
	order    []string // tags, in the order of their outcomes
	messages int
	draining bool
}

func (r *rig) many(ctx context.Context) *manyStream {
	r.Helper()
	stream, err := r.Client.FetchMany(ctx)
	must(r, err)
	return &manyStream{rig: r, FetchService_FetchManyClient: stream, outcomes: make(map[string][]*pb.FetchOutcome), events: make(map[string][]string),
		begins: make(map[string][]int64), ends: make(map[string]int64), bodies: make(map[string][]byte)}
}

// task is a fetch of path under a tag.
func (r *rig) task(tag, path string) *pb.Task { return &pb.Task{Tag: tag, Request: r.request(path)} }

func (m *manyStream) start(tasks ...*pb.Task) {
	m.Helper()
	must(m, m.Send(&pb.FetchManyRequest{Tasks: tasks}))
}

func (m *manyStream) cancel(tags ...string) {
	m.Helper()
	must(m, m.Send(&pb.FetchManyRequest{CancelTags: tags}))
}

// next receives one message.
func (m *manyStream) next() error {
	in, err := m.Recv()
	if err != nil {
		return err
	}
	m.messages++
	m.draining = m.draining || in.GetDraining()
	for _, a := range in.GetEvents() {
		m.events[a.GetTag()] = append(m.events[a.GetTag()], eventName(a.GetEvent()))
		if got, want := a.GetEvent().GetSequence(), int64(len(m.events[a.GetTag()])); got != want {
			m.Errorf("task %s: sequence %d, want %d", a.GetTag(), got, want)
		}
		if m.onAnswer != nil {
			m.onAnswer(a)
		}
		m.take(a)
		if o := a.GetEvent().GetOutcome(); o != nil {
			m.events[a.GetTag()+" before"], m.events[a.GetTag()] = m.events[a.GetTag()], nil
			m.outcomes[a.GetTag()] = append(m.outcomes[a.GetTag()], o)
			m.order = append(m.order, a.GetTag())
		}
	}
	return nil
}

// take adds a chunk to the body of its task.
func (m *manyStream) take(a *pb.TaskEvent) {
	m.Helper()
	tag, body := a.GetTag(), m.bodies[a.GetTag()]
	if s := a.GetEvent().GetResponseStarted(); s != nil {
		m.begins[tag] = append(m.begins[tag], s.GetBodyOffsetBytes())
	}
	c := a.GetEvent().GetBodyChunk()
	if c == nil {
		return
	}
	if begins := m.begins[tag]; len(begins) == 0 || c.GetOffsetBytes() != begins[len(begins)-1] && c.GetOffsetBytes() != m.ends[tag] {
		m.Errorf("task %s: a chunk at offset %d after %d bytes and responses at %d", tag, c.GetOffsetBytes(), m.ends[tag], begins)
		return
	}
	m.ends[tag] = c.GetOffsetBytes() + int64(len(c.GetData()))
	if m.discard {
		return
	}
	if int64(len(body)) < c.GetOffsetBytes() { // after a resume point
		body = make([]byte, c.GetOffsetBytes())
	}
	m.bodies[tag] = append(body[:c.GetOffsetBytes()], c.GetData()...)
}

// until reads until n tasks have an outcome.
func (m *manyStream) until(n int) {
	m.Helper()
	for len(m.order) < n {
		if err := m.next(); err != nil {
			m.Fatalf("%v after %d outcomes, want %d", err, len(m.order), n)
		}
	}
}

// finish half-closes the stream and reads to the end. Each tag must have an outcome.
func (m *manyStream) finish(tags ...string) {
	m.Helper()
	must(m, m.CloseSend())
	if err := m.end(); !errors.Is(err, io.EOF) {
		m.Errorf("the call ends with %v, want OK", err)
	}
	for _, tag := range tags {
		if n := len(m.outcomes[tag]); n != 1 {
			m.Errorf("task %s has %d outcomes, want 1", tag, n)
		}
	}
	if len(m.outcomes) != len(tags) {
		m.Errorf("%d tasks have outcomes, want %d", len(m.outcomes), len(tags))
	}
}

// end reads to the end of the call, and returns its error.
func (m *manyStream) end() error {
	for {
		if err := m.next(); err != nil {
			return err
		}
	}
}

// class of a task's outcome.
func (m *manyStream) class(tag string) pb.ErrorClass {
	m.Helper()
	if len(m.outcomes[tag]) != 1 {
		m.Fatalf("task %s has %d outcomes, want 1", tag, len(m.outcomes[tag]))
	}
	return m.outcomes[tag][0].GetError().GetErrorClass()
}

func (m *manyStream) wantClass(tag string, want pb.ErrorClass) {
	m.Helper()
	if got := m.class(tag); got != want {
		m.Errorf("task %s: %s, want %s", tag, got, want)
	}
}

const ok pb.ErrorClass = 0

// TestFetchMany sends tasks of many kinds in one message. Each has one outcome, in the order in
// which they end, and an invalid task affects no other.
func TestFetchMany(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		events := r.task("events", "/s/events/503/200:size=10")
		events.Request.EventLevel = pb.EventLevel_EVENT_LEVEL_ATTEMPTS
		digest := r.task("digest", "/s/digest/200:size=100000")
		digest.Request.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Digest{}}
		negative := r.task("negative", "/s/negative/200")
		negative.Request.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(-1))}
		m.start(r.task("slow", "/s/slow/200:delay=300ms"), r.task("inline", "/s/inline/200:size=5000"), events, digest, negative,
			r.task("missing", "/s/missing/404"), &pb.Task{Tag: "no URL", Request: new(pb.FetchRequest)}, &pb.Task{Tag: "nothing"},
			&pb.Task{Tag: "bad URL", Request: &pb.FetchRequest{Url: "http://user@a.example/"}})
		m.finish("slow", "inline", "events", "digest", "negative", "missing", "no URL", "nothing", "bad URL")
		for _, tag := range []string{"slow", "inline", "events", "digest"} {
			m.wantClass(tag, ok)
		}
		m.wantClass("missing", pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR)
		for tag, field := range map[string]string{"negative": "request.body_policy.max_size_bytes", "no URL": "request.url", "nothing": "request.url", "bad URL": "request.url"} {
			m.wantClass(tag, pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST)
			if e := m.outcomes[tag][0].GetError(); !strings.Contains(e.GetMessage(), field) || e.GetClassRule() != "P2" || e.GetRetryable() {
				r.Errorf("task %s: %v, want rule P2, not retryable, and a message that names %s", tag, e, field)
			}
		}
		if last := m.order[len(m.order)-1]; last != "slow" {
			r.Errorf("the outcome of %s came last of %q, want that of the slow one", last, m.order)
		}
		if body := m.outcomes["inline"][0].GetInlineBody(); !bytes.Equal(body, r.Origin.Body(5000)) {
			r.Errorf("%d bytes inline, want the 5000 of the origin", len(body))
		}
		if s := m.outcomes["digest"][0].GetBodySummary(); s.GetSizeBytes() != 100_000 || s.GetSha256() == "" {
			r.Errorf("summary %v, want 100000 bytes and their digest", s)
		}
		if got, want := m.events["events before"], []string{"admitted", "attempt_started", "response_started", "attempt_finished", "attempt_started", "response_started", "attempt_finished", "outcome"}; !slices.Equal(got, want) {
			r.Errorf("events %q, want %q", got, want)
		}
		if got := m.events["inline before"]; !slices.Equal(got, []string{"outcome"}) {
			r.Errorf("events %q of a task that asks for none, want its outcome alone", got)
		}
	})
}

// TestFetchManyTags checks that a task without a unique tag ends the call, because it cannot be
// answered.
func TestFetchManyTags(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name string
		tags []string
	}{
		{"the same twice", []string{"a", "a"}},
		{"none", []string{""}},
		{"257 bytes", []string{repeat(257)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				m := r.many(r.Context())
				tasks := []*pb.Task{r.task("before", "/s/silent/silent")}
				tasks[0].Request.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: seconds(0.1)}
				for _, tag := range row.tags {
					task := r.task(tag, "/s/silent/silent")
					task.Request.TimeoutPolicy = tasks[0].Request.TimeoutPolicy
					tasks = append(tasks, task)
				}
				m.start(tasks...)
				wantViolations(r.T, m.end(), []string{"tasks.tag"})
				m.wantClass("before", pb.ErrorClass_ERROR_CLASS_DEADLINE)
			})
		})
	}
	m := r.many(t.Context())
	for n := range 3 { // a tag is free again once its task is answered
		m.start(r.task("again", "/s/again/200"))
		m.until(n + 1)
	}
}

// TestFetchManyLongTasks checks that tasks are validated one by one, however long their message is.
func TestFetchManyLongTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	put := func(tag string, body int) *pb.Task { return &pb.Task{Tag: tag, Request: r.put(tag, body)} }
	m := r.many(t.Context())
	m.start(put("a", 900<<10), put("b", 900<<10), put("c", 900<<10))
	m.start(put("longest", 1<<20), put("too long", 1<<20+1), put("short", 1))
	m.start(put("much too long", 3<<20), put("after", 1))
	m.finish("a", "b", "c", "longest", "too long", "short", "much too long", "after")
	for _, tag := range []string{"a", "b", "c", "longest", "short", "after"} {
		m.wantClass(tag, ok)
	}
	for tag, text := range map[string]string{"too long": "request.body has 1048577 bytes: give at most 1048576", "much too long": "request.body has 3145728 bytes"} {
		m.wantClass(tag, pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST)
		if e := m.outcomes[tag][0].GetError(); !strings.Contains(e.GetMessage(), text) || e.GetRetryable() {
			t.Errorf("task %s: %v, want %q and not retryable", tag, e, text)
		}
		r.wantRequests(tag, 0)
	}
}

// TestFetchManyLongMessage: a message that is too long, or for which there is no memory,
// ends the call once the tasks in flight have their outcomes.
func TestFetchManyLongMessage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		budget int64
		bytes  int
		want   func(t *testing.T, err error)
	}{
		{"over 4 MiB", 512 << 20, 4 << 20, func(t *testing.T, err error) {
			t.Helper()
			wantViolations(t, err, []string{"tasks"})
			if text := status.Convert(err).Message(); !strings.Contains(text, "send at most 4194304 in a message") {
				t.Errorf("%q does not name the limit", text)
			}
		}},
		{"no memory for 3 MiB", 4 << 20, 3 << 20, func(t *testing.T, err error) {
			t.Helper()
			wantCode(t, "FetchMany", err, codes.ResourceExhausted)
			wantReason(t, err, "MEMORY")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withMemory(row.budget))
			m := r.many(t.Context())
			m.start(r.task("first", "/s/first/200"), r.task("slow", "/s/slow/200:delay=300ms"))
			m.until(1)
			_ = m.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: "long", Request: r.put("long", row.bytes)}}}) // the call ends while it is sent
			row.want(t, m.end())
			m.wantClass("first", ok)
			m.wantClass("slow", ok)
			if n := len(r.Origin.Requests("long")) + len(m.outcomes["long"]); n != 0 {
				t.Error("a task of the refused message was started")
			}
		})
	}
}

// TestFetchManyQuota checks that tasks over the limit wait, that each is admitted, and that a task
// that is cancelled or too late while it waits has an outcome.
func TestFetchManyQuota(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		var tags []string
		for n := range 6 {
			tags = append(tags, fmt.Sprint(n))
			m.start(r.task(tags[n], fmt.Sprintf("/s/k%d/200:delay=1s", n)))
		}
		m.start(r.task("cancelled", "/s/cancelled/200"))
		synctest.Wait()
		m.cancel("cancelled")
		_, err := r.Client.FetchUnary(r.Context(), r.request("/s/unary/200"))
		wantCode(r.T, "a call at the same time", err, codes.ResourceExhausted)
		began := time.Now()
		m.finish(append(tags, "cancelled")...)
		if took := time.Since(began).Round(10 * time.Millisecond); took != 3*time.Second {
			r.Errorf("6 tasks of a second, two at a time, took %s, want 3 s", took)
		}
		for _, tag := range tags {
			m.wantClass(tag, ok)
		}
		m.wantClass("cancelled", pb.ErrorClass_ERROR_CLASS_CANCELLED)
		r.wantRequests("cancelled", 0)
	}, func(c *server.Config) { c.MaxFetches = 2 })
}

// TestFetchManyFlowControl checks that the server stops reading while 256 tasks are in
// flight.
func TestFetchManyFlowControl(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		var tags []string
		for n := range 300 {
			tags = append(tags, fmt.Sprint(n))
			m.start(r.task(tags[n], fmt.Sprintf("/s/k%d/200:delay=1s", n)))
		}
		synctest.Wait()
		begun := func() int {
			n := 0
			for _, tag := range tags {
				n += len(r.Origin.Requests("k" + tag))
			}
			return n
		}
		if n := begun(); n != 256 {
			r.Errorf("%d tasks are in flight, want 256", n)
		}
		m.finish(tags...)
		if n := begun(); n != 300 {
			r.Errorf("the origin saw %d requests, want 300", n)
		}
		if m.messages > 100 {
			r.Errorf("300 answers came in %d messages, want them packed", m.messages)
		}
	})
}

// TestFetchManyShutdown checks that a drain is announced to the caller. Waiting tasks end as
// SHUTDOWN, running tasks finish, and tasks sent later are answered but not started.
func TestFetchManyShutdown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		close bool // half-close, as a caller should
		code  codes.Code
		ends  time.Duration
	}{
		{"the caller half-closes", true, codes.OK, 5 * time.Second},
		{"the caller does not", false, codes.Unavailable, 6 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				m := r.many(r.Context())
				retried := r.task("retried", "/s/retried/503")
				retried.Request.RetryPolicy = &pb.RetryPolicy{BaseDelay: durationpb.New(20 * time.Second), MaxDelay: durationpb.New(20 * time.Second)}
				m.start(r.task("runs", "/s/runs/200:delay=5s"), retried)
				synctest.Wait()
				m.start(r.task("waits", "/s/waits/200"))
				synctest.Wait()
				began := time.Now()
				down := r.startShutDown()
				m.until(2)
				if took := time.Since(began); took > 10*time.Millisecond || !m.draining {
					r.Errorf("waiting tasks ended after %s, draining %t; want at once, and draining set", took, m.draining)
				}
				m.start(r.task("late", "/s/late/200"))
				m.until(4)
				if row.close {
					must(r, m.CloseSend())
				}
				if err := m.next(); row.code == codes.OK && !errors.Is(err, io.EOF) {
					r.Errorf("the call ends with %v, want OK", err)
				} else if row.code != codes.OK {
					wantCode(r.T, "the call", err, row.code)
				}
				down()
				if took := time.Since(began); took < row.ends || took > row.ends+time.Second {
					r.Errorf("the server was down after %s, want %s", took, row.ends)
				}
				m.wantClass("runs", ok)
				for _, tag := range []string{"retried", "waits", "late"} {
					m.wantClass(tag, pb.ErrorClass_ERROR_CLASS_SHUTDOWN)
					if !m.outcomes[tag][0].GetError().GetRetryable() {
						r.Errorf("task %s is not retryable", tag)
					}
				}
				for _, key := range []string{"waits", "late"} {
					r.wantRequests(key, 0)
				}
			}, func(c *server.Config) { c.MaxFetches = 2 })
		})
	}
}

// TestFetchManyCallerThatStopsReading checks that such a call and its fetches end after 30 s.
func TestFetchManyCallerThatStopsReading(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		for n := range 8 {
			m.start(r.task(fmt.Sprint(n), "/s/k/200:size=100000"))
		}
		runs := r.task("runs", "/s/runs/silent")
		runs.Request.TimeoutPolicy = patient()
		m.start(runs)
		seen := r.awaitRequest("runs")
		began := time.Now()
		<-seen.Done
		if took := time.Since(began).Round(time.Second); took != 30*time.Second {
			r.Errorf("its fetches ended after %s, want 30 s", took)
		}
		err := m.end()
		wantCode(r.T, "FetchMany", err, codes.Aborted)
		wantReason(r.T, err, "CONSUMER_STALLED")
	})
}
