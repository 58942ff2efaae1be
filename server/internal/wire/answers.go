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
	// Room for the charges of most messages.
	leases  [3]*budget.Lease
	ticket1 [1]*admission.Ticket
}

// NewOutgoing returns a message that holds these charges.
func NewOutgoing(m proto.Message, held Held) *Outgoing {
	return &Outgoing{answer: answer{Held: held}, Message: m, Size: SizeOf(m)}
}

// Grow charges n more bytes for a message with an event that is no outcome. It reports whether they were granted.
func (o *Outgoing) Grow(n int64) bool { return o.Held.memory[0].Grow(budget.Answer, n) }

// Fill sets the message, whose events are paid.
func (o *Outgoing) Fill(m proto.Message) { o.Message, o.Size = m, SizeOf(m) }

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

// charge adds a charge of the message.
func (o *Outgoing) charge(l *budget.Lease) {
	if o.Held.memory == nil {
		o.Held.memory = o.leases[:0]
	}
	o.Held.memory = append(o.Held.memory, l)
}

// owns makes t the ticket of the message, which has its outcome.
func (o *Outgoing) owns(t *admission.Ticket) {
	o.ticket1[0] = t
	o.Held.tickets = o.ticket1[:]
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
		_, err := m.MarshalToSizedBufferVT(buf)
		return err
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

// Pay charges t for an event of the message, with the copies of it that are held while it is unread. An
// outcome takes the ticket with it. If there is no memory, the error is [fetch.ErrOutOfMemory], and for an
// outcome the status of the call.
func (o *Outgoing) Pay(ctx context.Context, t *admission.Ticket, event *pb.FetchEvent, copies int64) error {
	out := event.GetOutcome()
	if out == nil {
		return o.payEvent(t, event, copies)
	}
	if _, err := BecomeAnswer(ctx, t, event, copies, func() { conversion.ShortenOutcome(out) }); err != nil {
		return err
	}
	o.owns(t)
	return nil
}

// payEvent charges an event to its own lease. If there is no memory for it, it loses its headers and
// hops, and is then charged to the fetch's initial memory. A chunk takes the place of what was held back.
func (o *Outgoing) payEvent(t *admission.Ticket, event *pb.FetchEvent, copies int64) error {
	l, granted := t.Memory.AnotherWith(budget.Answer, copies*AnswerBytes(SizeOf(event)))
	if !granted {
		l = t.Memory.Another()
		if granted = conversion.ShortenEvent(event); granted {
			n := copies * AnswerBytes(SizeOf(event))
			granted = l.Grow(budget.Answer, n) ||
				t.Memory.Held(budget.Fetch)-n >= outcomeBytes && t.Memory.Pay(l, budget.Fetch, budget.Answer, n)
		} else if event.GetBodyChunk() != nil {
			granted = t.Memory.PayUpTo(l, budget.HoldBack, budget.Answer, copies*AnswerBytes(SizeOf(event)))
		}
	}
	if !granted {
		l.Close()
		return fetch.ErrOutOfMemory
	}
	o.charge(l)
	return nil
}

// BecomeAnswer changes the charge of a fetch to that of its answer and the copies of it, and returns
// the size of the answer. If there is no memory, it calls shorten and tries again. The charge stays
// at least [admission.FetchBytes], because the slot is kept as well: a caller that does not read must
// run out of memory before it has all slots.
func BecomeAnswer(ctx context.Context, t *admission.Ticket, answer proto.Message, copies int64, shorten func()) (size int, err error) {
	for shortened := false; ; shortened = true {
		size = SizeOf(answer)
		if t.Memory.Become(budget.Answer, max(AnswerBytes(size*int(copies)), min(t.Memory.Total(), admission.FetchBytes))) {
			return size, nil
		}
		if shortened {
			return 0, t.Slots.NoAnswer(ctx)
		}
		shorten()
	}
}

// PayMessage charges a message that is not part of a fetch. If the handler has passed a ticket to
// [HandOver], the message takes it instead.
func PayMessage(ctx context.Context, a *admission.Slots, message any) (*Outgoing, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, status.Error(codes.Internal, "internal error")
	}
	o := &Outgoing{answer: answer{conn: ConnOf(ctx)}, Message: m}
	if c := CallOf(ctx); c != nil && c.Ticket != nil {
		o.owns(c.Ticket)
		o.Size = c.size
		return o, nil
	}
	o.Size = SizeOf(m)
	l := a.Budget.Lease(admission.Caller(ctx))
	if !l.Grow(budget.Answer, AnswerBytes(o.Size)) {
		l.Close()
		return nil, a.NoMemory(ctx, "answers")
	}
	o.charge(l)
	return o, nil
}

// HandOver keeps the ticket of a call until its answer, which has that size, takes it.
func HandOver(ctx context.Context, t *admission.Ticket, size int) {
	if c := CallOf(ctx); c != nil {
		c.Ticket, c.size = t, size
		return
	}
	t.Release() // the handler was called without gRPC
}
