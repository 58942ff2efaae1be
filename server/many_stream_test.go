package server_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

// large is a task whose body is streamed, with time limits that do not end it.
func (r *rig) large(tag string, size int) *pb.Task {
	t := r.task(tag, fmt.Sprintf("/s/%s/200:size=%d", tag, size))
	t.Request.BodyPolicy = streamed(nil)
	t.Request.BodyPolicy.MaxSizeBytes = new(int64(1 << 40))
	t.Request.TimeoutPolicy = patient()
	return t
}

// streamOf returns the settings of a streamed body.
func streamOf(in *pb.FetchRequest) *pb.StreamDelivery {
	return cmp.Or(in.GetBodyPolicy().GetStream(), in.GetBodyPolicy().GetAuto())
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
		}, pb.ErrorClass_ERROR_CLASS_CANCELLED, codes.Aborted},
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
					attempted := m.outcomes[fmt.Sprint(i)][0].GetAttemptCount() > 0 // else it waited to send its first event
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
// it holds little memory until then, while another caller and another stream are served.
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
			out, err := r.Client.FetchUnary(as(r.Context(), "b"), r.request(fmt.Sprintf("/s/other%d/200:size=100000", i)))
			if err != nil || out.GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				r.Errorf("the other caller got %v, %v; want success", out.GetOutcome().GetError(), err)
			}
		}
		other := r.many(as(r.Context(), "a")) // of the same caller, on the same connection
		other.start(r.large("other", 3_000_000))
		other.finish("other")
		other.wantClass("other", ok)
		if !bytes.Equal(other.bodies["other"], r.Origin.Body(3_000_000)) {
			r.Errorf("the other stream received %d bytes, want the 3000000 of the origin", len(other.bodies["other"]))
		}
		if took := time.Since(began); took > time.Second {
			r.Errorf("the other caller and the other stream waited %s", took)
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
	const caller = 2<<20 + 76<<10 // what the stream reserves, and a fetch without a chunk
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
// starts, with a smaller one if need be. A hold-back is at most a sixteenth of what is left, so 44 of them
// leave memory for a chunk of each task, even if all start before the first chunk is sent.
func TestFetchManyHoldBack(t *testing.T) {
	t.Parallel()
	const tasks = 44
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		var tags []string
		for i := range tasks {
			task := r.task(fmt.Sprint(i), fmt.Sprintf("/s/k%d/200:size=600000,chunked", i))
			task.Request.BodyPolicy = auto(nil)
			m.start(task)
			tags = append(tags, task.GetTag())
		}
		m.finish(tags...)
		want := r.Origin.Body(600_000)
		for _, tag := range tags {
			m.wantClass(tag, ok)
			if !bytes.Equal(m.bodies[tag], want) {
				r.Errorf("task %s: %d bytes, want 600000", tag, len(m.bodies[tag]))
			}
		}
	}, withMemory(32<<20))
}

// TestHoldBackGivesWay runs tasks of one caller whose hold-backs together want more memory than there is. All of
// them succeed: a hold-back leaves what others cannot do without, or they wait for it.
func TestHoldBackGivesWay(t *testing.T) {
	t.Parallel()
	const tag = ",etag=%22v1%22,range"
	type delivery = func(*pb.StreamDelivery) *pb.BodyPolicy
	inline := func(*pb.StreamDelivery) *pb.BodyPolicy {
		return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}
	}
	type body struct {
		delivery delivery
		size     int
		how      string   // of each attempt
		attempts []string // what is special about each
	}
	once := []string{""}
	for _, row := range []struct {
		name   string
		memory int64
		tasks  int
		bodies []body // of the tasks, in turn
	}{
		{"AUTO, all in step", 32 << 20, 60, []body{{auto, 600_000, ",drip=100000@1s", once}}},
		{"AUTO, with hardly more than the tasks need", 10 << 20, 60, []body{{auto, 400_000, ",drip=50000@1s", once}}},
		{"AUTO, as many as a stream may have", 32 << 20, 250, []body{{auto, 200_000, ",drip=100000@1s", once}}},
		{"STREAM, all in step", 32 << 20, 60, []body{{streamed, 600_000, ",drip=100000@1s", once}}},
		{"mixed sizes, some of which break once", 32 << 20, 60, []body{
			{auto, 1000, "", once},
			{auto, 40_000, ",drip=10000@1s", []string{",cut=30000", ""}},
			{auto, 300_000, ",drip=50000@1s" + tag, []string{",cut=250000", ""}},
			{streamed, 600_000, ",drip=100000@1s" + tag, []string{",cut=450000", ""}},
			{auto, 1_500_000, "", once},
			{inline, 100_000, ",drip=10000@100ms", []string{",cut=50000", ""}},
		}},
		{"a body that breaks early is retried, however little memory there is", 9 << 20, 60, []body{
			{auto, 100_000, ",drip=10000@1s", []string{",cut=31000", ",cut=20000", ""}},
			{streamed, 100_000, ",drip=10000@1s", []string{",cut=31000", ",cut=20000", ""}},
		}},
		{"bodies for outcomes wait for hold-backs in use", 32 << 20, 60,
			append(slices.Repeat([]body{{auto, 500_000, ",drip=100000@1s", once}}, 3), body{inline, 200_000, ",delay=3s", once})},
		{"decoders wait for hold-backs in use", 32 << 20, 100,
			append(slices.Repeat([]body{{auto, 500_000, ",drip=100000@1s", once}}, 49), body{streamed, 2_000_000, ",delay=3s,coding=zstd", once})},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				m := r.many(r.Context())
				var tags []string
				for i := range row.tasks {
					b := row.bodies[i%len(row.bodies)]
					path := "/s/" + key(i)
					for _, attempt := range b.attempts {
						path += fmt.Sprintf("/200:size=%d,chunked%s%s", b.size, b.how, attempt)
					}
					task := r.task(key(i), path)
					task.Request.BodyPolicy, task.Request.TimeoutPolicy = b.delivery(new(pb.StreamDelivery)), patient()
					m.start(task)
					tags = append(tags, key(i))
				}
				m.finish(tags...)
				for i, tag := range tags {
					m.wantClass(tag, ok)
					size := int64(row.bodies[i%len(row.bodies)].size)
					if got := append(m.bodies[tag], m.outcomes[tag][0].GetInlineBody()...); !bytes.Equal(got, r.Origin.Body(size)) {
						r.Errorf("task %s: %d bytes, want %d", tag, len(got), size)
					}
				}
			}, withMemory(row.memory))
		})
	}
}

// TestFetchManyMemoryOfTheCaller checks that what a stream holds for bodies is charged to its caller: it
// leaves no memory to the caller's other calls, and takes none from another caller.
func TestFetchManyMemoryOfTheCaller(t *testing.T) {
	t.Parallel()
	known := newRoster()
	bubble(t, func(r *rig) {
		m := r.many(as(r.Context(), "a"))
		for i := range 220 {
			task := r.task(fmt.Sprint(i), fmt.Sprintf("/s/k%d/200:size=500000,no-length", i)) // all of it is held back
			task.Request.BodyPolicy, task.Request.TimeoutPolicy = auto(nil), patient()
			m.start(task)
		}
		synctest.Wait()
		held := r.Service.Held().Total()
		if held < 10<<20 || held > 12<<20 {
			r.Errorf("%d bytes are held, want the 12 MiB that a caller may have, or a little less", held)
		}
		get := func(token string) *pb.FetchOutcome {
			in := r.request(fmt.Sprintf("/s/%s/200:size=1000000", token))
			in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: seconds(5)} // it may wait for what tasks hold back
			in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}
			out, err := r.Client.FetchUnary(as(r.Context(), token), in)
			if err != nil {
				wantReason(r.T, err, "MEMORY")
				return &pb.FetchOutcome{Error: &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY}}
			}
			return out.GetOutcome()
		}
		switch class := get("a").GetError().GetErrorClass(); class {
		case pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY, pb.ErrorClass_ERROR_CLASS_DEADLINE:
		default:
			r.Errorf("another call of the caller: %s, want OUT_OF_MEMORY or DEADLINE", class)
		}
		if class := get("b").GetError().GetErrorClass(); class != ok {
			r.Errorf("a call of another caller: %s, want success", class)
		}
	}, known.change, withMemory(16<<20))
}
