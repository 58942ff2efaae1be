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

	pb "fetchd/gen/fetchd/v1"
)

const (
	streamDelivery = pb.BodyDelivery_BODY_DELIVERY_STREAM
	autoDelivery   = pb.BodyDelivery_BODY_DELIVERY_AUTO
)

// large is a task whose body is streamed, with time limits that do not end it.
func (r *rig) large(tag string, size int) *pb.Task {
	t := r.task(tag, fmt.Sprintf("/s/%s/200:size=%d", tag, size))
	t.Request.BodyPolicy = &pb.BodyPolicy{Delivery: streamDelivery, MaxSizeBytes: new(int64(1 << 40))}
	t.Request.TimeoutPolicy = patient()
	return t
}

// TestFetchManyBodies checks how bodies are delivered, by delivery, size and what goes wrong.
func TestFetchManyBodies(t *testing.T) {
	t.Parallel()
	const tag = ",etag=%22v1%22,range"
	r := newRig(t)
	for _, row := range []struct {
		name, script string
		delivery     pb.BodyDelivery
		change       func(*pb.FetchRequest)
		inline, size int // bytes in the outcome, and the end of those in chunks
		events       string
		class        pb.ErrorClass
	}{
		{"unset is INLINE", "200:size=1000", 0, nil, 1000, 0, "outcome", 0},
		{"unset is at most 1 MiB", "200:size=1048577", 0, nil, 0, 0, "outcome", pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE},
		{"AUTO, small", "200:size=1000", autoDelivery, nil, 1000, 0, "outcome", 0},
		{"AUTO, empty", "200:size=0", autoDelivery, nil, 0, 0, "outcome", 0},
		{"AUTO, large", "200:size=3000000", autoDelivery, nil, 0, 3_000_000, "response_started body_chunk outcome", 0},
		{"AUTO, a 404", "404:size=1000", autoDelivery, nil, 0, 0, "outcome", pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR},
		{"STREAM, small", "200:size=1000", streamDelivery, nil, 0, 1000, "response_started body_chunk outcome", 0},
		{"STREAM, empty", "200:size=0", streamDelivery, nil, 0, 0, "response_started outcome", 0},
		{"STREAM, large", "200:size=3000000", streamDelivery, nil, 0, 3_000_000, "response_started body_chunk outcome", 0},
		{"STREAM, decoded", "200:size=3000000,coding=gzip,chunked", streamDelivery, nil, 0, 3_000_000, "response_started body_chunk outcome", 0},
		{"STREAM, truncated", "200:size=3000000", streamDelivery, func(in *pb.FetchRequest) {
			in.BodyPolicy.MaxSizeBytes, in.BodyPolicy.OversizeAction = new(int64(2_000_000)), pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE
		}, 0, 2_000_000, "response_started body_chunk outcome", 0},
		{"STREAM, with events", "503/200:size=40000", streamDelivery, func(in *pb.FetchRequest) { in.EventLevel = pb.EventLevel_EVENT_LEVEL_ATTEMPTS },
			0, 40_000, "admitted attempt_started response_started attempt_finished attempt_started response_started body_chunk attempt_finished outcome", 0},
		{"STREAM, interrupted early", "200:size=40000,cut=20000/200:size=40000", streamDelivery, nil, 0, 40_000, "response_started body_chunk outcome", 0},
		{"AUTO, interrupted early", "200:size=40000,cut=20000/200:size=40000", autoDelivery, nil, 40_000, 0, "outcome", 0},
		{"AUTO, resumed", "200:size=3000000,cut=2000000" + tag + "/200:size=3000000" + tag, autoDelivery, nil, 0, 3_000_000, "response_started body_chunk response_started body_chunk outcome", 0},
		{"AUTO, restarted", "200:size=3000000,cut=2000000" + tag + "/200:size=100,etag=%22v2%22", autoDelivery, func(in *pb.FetchRequest) { in.BodyPolicy.Recovery = pb.BodyRecovery_BODY_RECOVERY_RESTART },
			0, 100, "response_started body_chunk response_started body_chunk outcome", 0},
		{"STREAM, interrupted for good", "200:size=3000000,cut=2000000", streamDelivery, nil, 0, 2_000_000, "response_started body_chunk outcome", pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED},
		{"a resume point", "200:size=3000000" + tag, streamDelivery, func(in *pb.FetchRequest) {
			in.BodyPolicy.ResumePoint = &pb.ResumePoint{OffsetBytes: 1_000_000, Validator: `"v1"`}
		}, 0, 3_000_000, "response_started body_chunk outcome", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			task := r.task("a", "/s/"+strings.NewReplacer(" ", "-", ",", "").Replace(row.name)+"/"+row.script)
			task.Request.BodyPolicy = &pb.BodyPolicy{Delivery: row.delivery}
			if row.change != nil {
				row.change(task.Request)
			}
			m := r.many(t.Context())
			m.T = t
			m.start(task, r.task("b", "/s/b/200:size=10"))
			m.finish("a", "b")
			m.wantClass("a", row.class)
			m.wantClass("b", ok)
			if got := strings.Join(slices.Compact(m.events["a before"]), " "); got != row.events {
				t.Errorf("events %s, want %s", got, row.events)
			}
			if got := m.outcomes["a"][0].GetInlineBody(); !bytes.Equal(got, r.Origin.Body(int64(row.inline))) {
				t.Errorf("%d bytes in the outcome, want %d", len(got), row.inline)
			}
			got, from := m.bodies["a"], min(task.Request.GetBodyPolicy().GetResumePoint().GetOffsetBytes(), int64(row.size))
			if want := r.Origin.Body(int64(row.size)); len(got) != len(want) || !bytes.Equal(got[from:], want[from:]) {
				t.Errorf("%d bytes in chunks, want %d", len(got), row.size)
			}
		})
	}
}

// TestFetchManySlowReader checks that the time in which the caller does not read ends neither the
// attempts nor the call, and that nothing is lost (spec B7).
func TestFetchManySlowReader(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		for _, tag := range []string{"a", "b"} {
			task := r.large(tag, 400_000)
			task.Request.TimeoutPolicy.AttemptTimeout, task.Request.TimeoutPolicy.IdleTimeout = seconds(3), seconds(3)
			m.start(task)
		}
		for len(m.order) < 2 {
			<-time.After(20 * time.Second)
			for range 8 { // more than gRPC has queued
				if len(m.order) < 2 {
					must(r, m.next())
				}
			}
		}
		m.finish("a", "b")
		for _, tag := range []string{"a", "b"} {
			m.wantClass(tag, ok)
			if !bytes.Equal(m.bodies[tag], r.Origin.Body(400_000)) {
				r.Errorf("task %s: %d bytes, want the 400000 of the origin", tag, len(m.bodies[tag]))
			}
			if waited := m.outcomes[tag][0].GetHops()[0].GetExchange().GetBackpressureDuration().AsDuration(); waited < 20*time.Second {
				r.Errorf("task %s: backpressure of %s, want more than 20 s", tag, waited)
			}
		}
	})
}

// unread is a bound for what a stream sends to a caller that does not read: what gRPC queues, the
// window of the stream, and a message.
const unread = 256 << 10

// TestFetchManyEndsInsideBodies ends fetches while their bodies wait for a caller that does not read.
// The outcomes must not wait for the bodies.
func TestFetchManyEndsInsideBodies(t *testing.T) {
	t.Parallel()
	const tasks, size = 256, 1 << 30 // as many as a stream runs
	for _, row := range []struct {
		name  string
		end   func(*rig, *manyStream, context.CancelFunc)
		class pb.ErrorClass
		code  codes.Code
	}{
		{"cancelled by tag", func(r *rig, m *manyStream, _ context.CancelFunc) {
			for i := range tasks {
				m.cancel(fmt.Sprint(i))
			}
			synctest.Wait()
			must(r, m.CloseSend())
		}, pb.ErrorClass_ERROR_CLASS_CANCELLED, codes.OK},
		{"deadline of the call", func(*rig, *manyStream, context.CancelFunc) {
			<-time.After(19*time.Second + time.Millisecond) // the reserve is 1 s
		}, pb.ErrorClass_ERROR_CLASS_DEADLINE, codes.DeadlineExceeded},
		{"revoked", func(r *rig, _ *manyStream, revoke context.CancelFunc) {
			revoke()
			r.Service.Reauthenticate()
		}, pb.ErrorClass_ERROR_CLASS_CANCELLED, codes.Unauthenticated},
		{"shutdown", func(r *rig, _ *manyStream, _ context.CancelFunc) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			r.Cleanup(cancel)
			go func() { _ = r.Service.Shutdown(ctx) }()
			<-time.After(9*time.Second + 500*time.Millisecond + time.Millisecond) // the reserve is 500 ms
		}, pb.ErrorClass_ERROR_CLASS_SHUTDOWN, codes.Unavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			known := newRoster()
			bubble(t, func(r *rig) {
				ctx, cancel := context.WithTimeout(as(r.Context(), "a"), 20*time.Second)
				defer cancel()
				m := r.many(ctx)
				for i := range tasks {
					task := r.large(fmt.Sprint(i), size)
					task.Request.EventLevel = pb.EventLevel_EVENT_LEVEL_ATTEMPTS
					m.start(task)
				}
				synctest.Wait()
				row.end(r, m, func() { known.set("a", "") })
				synctest.Wait()
				err := m.end()
				if row.code == codes.OK && errors.Is(err, io.EOF) {
					err = nil
				}
				wantCode(r.T, "the call", err, row.code)
				received := int64(0)
				for i := range tasks {
					m.wantClass(fmt.Sprint(i), row.class)
					received += m.ends[fmt.Sprint(i)]
					attempted := m.outcomes[fmt.Sprint(i)][0].GetAttempts() > 0 // else it waited to send its first event
					if events := m.events[fmt.Sprint(i)+" before"]; slices.Contains(events, "attempt_finished") != attempted {
						r.Errorf("task %d: events %q, attempted: %t", i, events, attempted)
					}
				}
				if received == 0 || received > unread {
					r.Errorf("%d bytes of the bodies arrived, want 1 to %d", received, unread)
				}
			}, known.change)
		})
	}
}

// TestFetchManyStalledBodies checks that a stream ends whose caller reads nothing for 30 s, and that
// it holds little memory until then, while another caller is served.
func TestFetchManyStalledBodies(t *testing.T) {
	t.Parallel()
	const tasks, size = 256, 100 << 20
	known := newRoster()
	bubble(t, func(r *rig) {
		m := r.many(as(r.Context(), "a"))
		for i := range tasks {
			m.start(r.large(fmt.Sprint(i), size))
		}
		began := time.Now()
		synctest.Wait()
		// A fetch is charged 40 KiB and its request. The stream has reserved 2 MiB.
		if held := r.Service.Held().Total(); held > tasks*(44<<10)+2<<20+unread {
			r.Errorf("%d bytes are held for %d bodies of %d bytes", held, tasks, size)
		}
		for i := range 20 {
			out, err := r.Client.FetchUnary(as(r.Context(), "b"), &pb.FetchUnaryRequest{Request: r.request(fmt.Sprintf("/s/other%d/200:size=100000", i))})
			if err != nil || out.GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				r.Errorf("the other caller got %v, %v; want success", out.GetOutcome().GetError(), err)
			}
		}
		if took := time.Since(began); took > time.Second {
			r.Errorf("the other caller waited %s", took)
		}
		for i := range tasks {
			<-r.awaitRequest(fmt.Sprint(i)).Done
		}
		wantTook(r, "the fetches ended", began, 30*time.Second)
		err := m.end()
		wantCode(r.T, "FetchMany", err, codes.Aborted)
		wantReason(r.T, err, "CONSUMER_STALLED")
	}, known.change)
}

// TestFetchManyChunkWithoutMemory checks that a fetch ends as OUT_OF_MEMORY if there is no memory to
// send a chunk, and that the stream goes on.
func TestFetchManyChunkWithoutMemory(t *testing.T) {
	t.Parallel()
	const caller = 2<<20 + 60<<10 // what the stream reserves, and a fetch without a chunk
	r := newRig(t, withMemory(caller*4/3))
	m := r.many(t.Context())
	large := r.large("large", 1<<30)
	large.Request.EventLevel = pb.EventLevel_EVENT_LEVEL_ATTEMPTS
	m.start(large)
	m.until(1)
	m.wantClass("large", pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY)
	if got := m.events["large before"]; !slices.Equal(got[len(got)-2:], []string{"attempt_finished", "outcome"}) {
		t.Errorf("events %q, want attempt_finished before the outcome", got)
	}
	m.start(r.task("small", "/s/small/200"))
	m.finish("large", "small")
	m.wantClass("small", ok)
}

// TestFetchManyHoldBack checks that the hold-back of many tasks is granted from one budget: each task
// starts, with a smaller one if need be.
func TestFetchManyHoldBack(t *testing.T) {
	t.Parallel()
	const tasks = 200
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		var tags []string
		for i := range tasks {
			task := r.task(fmt.Sprint(i), fmt.Sprintf("/s/k%d/200:size=600000,chunked", i))
			task.Request.BodyPolicy = &pb.BodyPolicy{Delivery: autoDelivery}
			m.start(task)
			tags = append(tags, task.GetTag())
		}
		m.finish(tags...)
		for _, tag := range tags {
			m.wantClass(tag, ok)
			if !bytes.Equal(m.bodies[tag], r.Origin.Body(600_000)) {
				r.Errorf("task %s: %d bytes, want 600000", tag, len(m.bodies[tag]))
			}
		}
	}, withMemory(32<<20))
}

// TestFetchManySmallNextToLarge checks that small tasks are answered while large bodies are sent to a
// caller that reads as fast as it can.
func TestFetchManySmallNextToLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := r.many(ctx)
	m.start(r.large("large1", 1<<40), r.large("large2", 1<<40))
	m.discard = true
	for m.ends["large1"] == 0 || m.ends["large2"] == 0 {
		must(t, m.next())
	}
	for i := range 200 {
		tag := fmt.Sprint(i)
		task := r.task(tag, "/s/k"+tag+"/200:size=1000")
		task.Request.BodyPolicy = &pb.BodyPolicy{Delivery: autoDelivery}
		m.start(task)
		m.until(i + 1)
	}
	if len(m.outcomes) != 200 {
		t.Errorf("%d tasks have an outcome, want the 200 small ones", len(m.outcomes))
	}
}
