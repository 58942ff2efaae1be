package wire

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/conversion"
)

const (
	// answerOverhead is the memory of a message in grpc-go and here, without its bytes.
	answerOverhead = 512
	// smallAnswer is the size of the smallest buffers: gRPC releases a buffer explicitly
	// only if it has more than 1 KiB.
	smallAnswer = 1152
	// LongAnswer is the size of the largest pooled buffers. A longer message gets its own
	// buffer.
	LongAnswer = 32 << 10
)

// bufferSizes are the sizes of the pooled buffers, and bufferPools their pools.
var (
	bufferSizes = [...]int{smallAnswer, 4 << 10, 8 << 10, 16 << 10, LongAnswer}
	bufferPools [len(bufferSizes)]sync.Pool // of *answerBuffer
)

// bufferSize returns the size of the buffer for a message, and its pool, or nil.
func bufferSize(size int) (int, *sync.Pool) {
	for i, room := range bufferSizes {
		if size <= room {
			return room, &bufferPools[i]
		}
	}
	return size, nil
}

// AnswerBytes returns the charge for a message of that size while it is unread.
func AnswerBytes(size int) int64 {
	room, _ := bufferSize(size)
	return int64(room) + answerOverhead
}

// Outgoing is a message to be sent to its caller, with its charges. When it is encoded it becomes an
// unread answer, in the same memory.
type Outgoing struct {
	answer
	Message proto.Message // nil once it is encoded
	Size    int
	encoded bool // its buffer owns the charges
	// The charges of most messages.
	lease  budget.Lease
	memory [1]*budget.Lease
	ticket [1]*admission.Ticket
}

// NewOutgoing returns a message of size bytes that holds these charges.
func NewOutgoing(m proto.Message, size int, held Held) *Outgoing {
	return &Outgoing{answer: answer{Held: held}, Message: m, Size: size}
}

// Pay is the function [Pay] for an event of the message: for an outcome, or for its first event.
func (o *Outgoing) Pay(ctx context.Context, t *admission.Ticket, event *pb.FetchEvent, size int, copies int64) (int, error) {
	size, err := Pay(ctx, t, &o.lease, event, event, size, copies)
	switch {
	case err != nil: // the next event is the first
	case event.GetOutcome() != nil:
		o.owns(t)
	default:
		o.charge()
	}
	return size, err
}

// Grow charges n more bytes for a message whose first event is paid. It reports whether they were granted.
func (o *Outgoing) Grow(n int64) bool { return o.lease.Grow(budget.Answer, n) }

// PartBytes returns the size of an event of size bytes as a part of its message.
func PartBytes(size int) int { return 1 + protowire.SizeBytes(size) }

// Fill sets the message, whose events are paid, and its size.
func (o *Outgoing) Fill(m proto.Message, size int) { o.Message, o.Size = m, size }

// Send sends the message on a stream. It releases the charges if gRPC has not encoded it.
func (o *Outgoing) Send(stream grpc.ServerStream) error {
	o.conn = ConnOf(stream.Context())
	defer o.Release()
	return stream.SendMsg(o)
}

// Release releases the charges, unless the message was encoded.
func (o *Outgoing) Release() {
	if !o.encoded {
		o.answer.release()
	}
}

// charge makes the lease a charge of the message.
func (o *Outgoing) charge() {
	o.memory[0] = &o.lease
	o.Held.memory = o.memory[:]
}

// owns makes t the ticket of the message, which has its outcome.
func (o *Outgoing) owns(t *admission.Ticket) {
	o.ticket[0] = t
	o.Held.tickets = o.ticket[:]
}

// Lease returns a lease that the message is charged to.
func (o *Outgoing) Lease() *budget.Lease {
	if len(o.Held.tickets) > 0 {
		return o.Held.tickets[0].Memory
	}
	return o.Held.memory[0]
}

// encode writes the message into buf, which has its size.
func (o *Outgoing) encode(buf []byte) error {
	if m, ok := o.Message.(generated); ok {
		if n, err := m.MarshalToSizedBufferVT(buf); err != nil || n == len(buf) {
			return err
		}
		return status.Error(codes.Internal, "a message has another size than its parts")
	}
	_, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buf[:0], o.Message)
	return err
}

// Encode encodes the message into a buffer that owns the charges of o until gRPC has
// written it to the connection or dropped it.
func (o *Outgoing) Encode() (mem.BufferSlice, error) {
	o.encoded, o.since = true, time.Now()
	b := newAnswerBuffer(o.Size)
	b.lost.Store(&o.answer)
	if err := o.encode(b.data); err != nil {
		b.Put(nil)
		return nil, err
	}
	o.Message = nil
	o.conn.add(&o.answer)
	return mem.BufferSlice{mem.NewBuffer(&b.data, b)}, nil
}

// answerBuffer is a buffer for one message. It is also the pool to which gRPC returns it.
type answerBuffer struct {
	mem.NopBufferPool // for Get, which gRPC never calls

	data  []byte
	whole []byte // the full buffer
	from  *sync.Pool
	lost  *lostAnswer
}

// lostAnswer releases the answer of a buffer that is collected before gRPC returns it.
type lostAnswer struct{ atomic.Pointer[answer] }

func (l *lostAnswer) release() {
	if a := l.Swap(nil); a != nil {
		a.release()
	}
}

func newAnswerBuffer(size int) *answerBuffer {
	room, pool := bufferSize(size)
	var b *answerBuffer
	if pool != nil {
		b, _ = pool.Get().(*answerBuffer)
	}
	if b == nil {
		b = &answerBuffer{whole: make([]byte, room), from: pool, lost: new(lostAnswer)}
		// gRPC may drop the buffer without returning it.
		runtime.AddCleanup(b, (*lostAnswer).release, b.lost)
	}
	b.data = b.whole[:size]
	return b
}

// Put implements mem.BufferPool. gRPC calls it when it no longer needs the buffer.
func (b *answerBuffer) Put(*[]byte) {
	b.lost.release()
	if b.from != nil {
		b.from.Put(b)
	}
}

// outcomeBytes of the charge of a fetch are kept for its outcome.
const outcomeBytes = 16 << 10

// Pay charges t for a message m with one event, which has size bytes, and for the copies of it that are held while it
// is unread. An outcome takes the ticket with it; other events are charged to l, which is zero. If there is no memory,
// the error is [fetch.ErrOutOfMemory], and for an outcome the status of the call. Pay returns the size: the event may
// have been shortened.
func Pay(ctx context.Context, t *admission.Ticket, l *budget.Lease, m proto.Message, event *pb.FetchEvent, size int, copies int64) (int, error) {
	if out := event.GetOutcome(); out != nil {
		return BecomeAnswer(ctx, t, m, size, copies, func() { conversion.ShortenOutcome(out) })
	}
	return payEvent(t, l, m, event, size, copies)
}

// payEvent charges an event to l. If there is no memory for it, it loses its headers and
// hops, and is then charged to the fetch's initial memory. A chunk takes the place of what was held back.
func payEvent(t *admission.Ticket, l *budget.Lease, m proto.Message, event *pb.FetchEvent, size int, copies int64) (int, error) {
	granted := t.Memory.OpenWith(l, budget.Answer, copies*AnswerBytes(size))
	if !granted {
		if granted = conversion.ShortenEvent(event); granted {
			size = SizeOf(m)
			n := copies * AnswerBytes(size)
			granted = l.Grow(budget.Answer, n) ||
				t.Memory.Held(budget.Fetch)-n >= outcomeBytes && t.Memory.Pay(l, budget.Fetch, budget.Answer, n)
		} else if event.GetBodyChunk() != nil {
			granted = t.Memory.PayUpTo(l, budget.HoldBack, budget.Answer, copies*AnswerBytes(size))
		}
	}
	if !granted {
		l.Close()
		return 0, fetch.ErrOutOfMemory
	}
	return size, nil
}

// BecomeAnswer changes the charge of a fetch to that of its answer, which has size bytes, and the copies of it. It returns
// the size of the answer. If there is no memory, it calls shorten and tries again. The charge stays
// at least [admission.FetchBytes], because the slot is kept as well: a caller that does not read must
// run out of memory before it has all slots.
func BecomeAnswer(ctx context.Context, t *admission.Ticket, answer proto.Message, size int, copies int64, shorten func()) (int, error) {
	for shortened := false; ; shortened = true {
		if t.Memory.Become(budget.Answer, max(AnswerBytes(size*int(copies)), min(t.Memory.Total(), admission.FetchBytes))) {
			return size, nil
		}
		if shortened {
			return 0, t.Slots.NoAnswer(ctx)
		}
		shorten()
		size = SizeOf(answer)
	}
}

// PayMessage charges a message that is not part of a fetch. If the handler has passed a ticket to
// [HandOver], the message takes it instead.
func PayMessage(ctx context.Context, a *admission.Slots, message any) (*Outgoing, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, status.Error(codes.Internal, "internal error")
	}
	if c := CallOf(ctx); c != nil && c.Ticket != nil {
		o := &Outgoing{answer: answer{conn: ConnOf(ctx)}, Message: m, Size: c.size}
		o.owns(c.Ticket)
		return o, nil
	}
	if o := Charged(ctx, a.Budget, m); o != nil {
		return o, nil
	}
	return nil, a.NoMemory(ctx, "answers")
}

// Charged returns a message that is charged to its caller, or nil if there is no memory for it.
func Charged(ctx context.Context, memory *budget.Budget, m proto.Message) *Outgoing {
	o := &Outgoing{answer: answer{conn: ConnOf(ctx)}, Message: m, Size: SizeOf(m)}
	memory.Open(&o.lease, admission.Caller(ctx))
	if !o.Grow(AnswerBytes(o.Size)) {
		o.lease.Close()
		return nil
	}
	o.charge()
	return o
}

// HandOver keeps the ticket of a call until its answer, which has that size, takes it.
func HandOver(ctx context.Context, t *admission.Ticket, size int) {
	if c := CallOf(ctx); c != nil {
		c.Ticket, c.size = t, size
		return
	}
	t.Release() // the handler was called without gRPC
}
