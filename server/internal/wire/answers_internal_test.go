package wire

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/test/must"
)

// TestAnswerIsCharged checks that an answer and the slot of its fetch are held until
// gRPC releases the buffer, drops it, or the connection is closed.
func TestAnswerIsCharged(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, smallAnswer, smallAnswer + 1, LongAnswer, LongAnswer + 1, 1 << 20} {
		for _, row := range []struct {
			name string
			end  func(*Conn, mem.BufferSlice)
		}{
			{"sent", func(_ *Conn, b mem.BufferSlice) { b.Free() }},
			{"dropped", func(*Conn, mem.BufferSlice) {}},
			{"cut off", func(c *Conn, _ mem.BufferSlice) { _ = c.Close() }},
			{"cut off and freed", func(c *Conn, b mem.BufferSlice) { _ = c.Close(); b.Free() }},
		} {
			t.Run(fmt.Sprintf("%d bytes, %s", size, row.name), func(t *testing.T) {
				t.Parallel()
				there, here := net.Pipe()
				t.Cleanup(func() { _ = there.Close() })
				c := accepted(t, here)
				tick := newTicket(t)
				m := wrapperspb.Bytes(make([]byte, size))
				if _, err := BecomeAnswer(t.Context(), tick, m, SizeOf(m), 1, func() {}); err != nil {
					t.Fatal(err)
				}
				o := NewOutgoing(m, SizeOf(m), Held{tickets: []*admission.Ticket{tick}})
				o.conn = c
				out, err := NewCodec().Marshal(o)
				if err != nil || out.Len() != o.Size {
					t.Fatalf("Marshal = %d bytes, %v; want %d", out.Len(), err, o.Size)
				}
				o.Release() // it was encoded: nothing happens
				usage := func() (int64, int) {
					inFlight, _ := tick.Slots.Load()
					return tick.Slots.Budget.Usage().Total(), inFlight
				}
				if n, inFlight := usage(); n < int64(size) || inFlight != 1 {
					t.Errorf("%d bytes and %d slots are held before the answer is read", n, inFlight)
				}
				row.end(c, out)
				out, o = nil, nil
				for range 100 {
					if n, inFlight := usage(); n == 0 && inFlight == 0 {
						return
					}
					runtime.GC()
					runtime.Gosched()
				}
				n, inFlight := usage()
				t.Errorf("%d bytes and %d slots are still held", n, inFlight)
			})
		}
	}
}

// TestAnswerThatIsNotEncoded checks that such an answer releases its charges.
func TestAnswerThatIsNotEncoded(t *testing.T) {
	t.Parallel()
	tick := newTicket(t)
	NewOutgoing(nil, 0, Held{tickets: []*admission.Ticket{tick}}).Release()
	if n := tick.Slots.Budget.Usage().Total(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestOldestAnswer checks that a connection is closed two minutes after its oldest
// unread answer was written, and no earlier.
func TestOldestAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		defer func() { _ = there.Close() }()
		closed := make(chan time.Time, 1)
		c := accepted(t, closing{here, func() { closed <- time.Now() }})
		began := time.Now()
		add := func() *answer {
			a := &answer{conn: c, since: time.Now()}
			c.add(a)
			return a
		}
		first, second := add(), add()
		<-time.After(time.Minute)
		add()
		first.release()
		second.release()
		<-time.After(90 * time.Second)
		synctest.Wait()
		select {
		case at := <-closed:
			t.Errorf("closed after %s, while the oldest answer is 90 s old", at.Sub(began))
		default:
		}
		if at, want := <-closed, began.Add(3*time.Minute); !at.Equal(want) {
			t.Errorf("closed at %s, want %s", at, want)
		}
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.unread.Len() > 0 {
			t.Error("a closed connection still has answers")
		}
	})
}

// TestRequestOfTooManyElements checks that such a request is refused before it uses memory. All
// elements count, at any depth.
func TestRequestOfTooManyElements(t *testing.T) {
	t.Parallel()
	body := func(n int) *pb.FetchRequest {
		return &pb.FetchRequest{Url: "http://a.example/", Body: make([]byte, n)}
	}
	for _, row := range []struct {
		name string
		in   proto.Message
		at   string // of what is refused
	}{
		{"a long body", body(1 << 20), ""},
		{"as many headers as may be", &pb.FetchRequest{Headers: make([]*pb.Header, MaxElements)}, ""},
		{"one more", &pb.FetchRequest{Headers: make([]*pb.Header, MaxElements+1)}, "headers"},
		{"in a message", &pb.FetchManyRequest{Tasks: []*pb.Task{{Request: &pb.FetchRequest{Headers: make([]*pb.Header, MaxElements+1)}}}}, "tasks.request.headers"},
		{"packed", &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{ExcludedStatusCodes: make([]int32, MaxElements+1)}}, "retry_policy.excluded_status_codes"},
		{"strings", &pb.FetchRequest{Precondition: &pb.Precondition{Etags: make([]string, MaxElements+1)}}, "precondition.etags"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			data, err := proto.Marshal(row.in)
			must.Succeed(t, err)
			got := row.in.ProtoReflect().New().Interface()
			if err := NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got); err != nil {
				t.Fatal(err)
			}
			err = CheckElements(got)
			switch {
			case row.at == "" && (err != nil || !proto.Equal(got, row.in)):
				t.Errorf("refused: %v", err)
			case row.at != "" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), row.at+" is where")):
				t.Errorf("%v, want INVALID_ARGUMENT at %s", err, row.at)
			}
		})
	}
}

// newTicket returns the ticket of an admitted fetch. Nothing may be charged at the end of
// the test.
func newTicket(t *testing.T) *admission.Ticket {
	t.Helper()
	a := admission.New(budget.New(1<<30), &admission.Limits{Fetches: 1, PerCaller: 1}, "", "", "", func(string, string) {})
	made, err := a.Enter(t.Context(), nil, admission.Charge{Kind: budget.Fetch, Bytes: admission.FetchBytes})
	must.Succeed(t, err)
	t.Cleanup(made.Release)
	return made
}
