package server

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"fetchd/internal/budget"
)

const (
	// unreadTime is how long an answer may stay unread before its connection is closed. It
	// bounds the time that a unary answer is held: no send blocks on it.
	unreadTime = 2 * time.Minute
	// answerOverhead is the memory of a message in grpc-go and here, without its bytes.
	answerOverhead = 512
	// smallAnswer is the size of the smallest buffers: gRPC releases a buffer explicitly
	// only if it has more than 1 KiB.
	smallAnswer = 1152
	// longAnswer is the size of the largest pooled buffers. A longer message gets its own
	// buffer.
	longAnswer = 32 << 10
)

// bufferSizes are the sizes of the pooled buffers, and bufferPools their pools.
var (
	bufferSizes = [...]int{smallAnswer, 4 << 10, 8 << 10, 16 << 10, longAnswer}
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

// answerBytes returns the charge for a message of that size while it is unread.
func answerBytes(size int) int64 {
	room, _ := bufferSize(size)
	return int64(room) + answerOverhead
}

// outgoing is a message to be sent to its caller, with its charges. When it is encoded it becomes an
// unread answer, in the same memory.
type outgoing struct {
	answer
	message proto.Message // nil once it is encoded
	size    int
	encoded bool // its buffer owns the charges
	// Room for the charge of most messages.
	lease1  [1]*budget.Lease
	ticket1 [1]*ticket
}

// release releases the charges, unless the message was encoded.
func (o *outgoing) release() {
	if !o.encoded {
		o.answer.release()
	}
}

// charge makes l the charge of the message.
func (o *outgoing) charge(l *budget.Lease) {
	o.lease1[0] = l
	o.memory = o.lease1[:]
}

// owns makes t the ticket of the message, which has its outcome.
func (o *outgoing) owns(t *ticket) {
	o.ticket1[0] = t
	o.tickets = o.ticket1[:]
}

// lease returns the lease that the message is charged to.
func (o *outgoing) lease() *budget.Lease {
	if len(o.tickets) > 0 {
		return o.tickets[0].memory
	}
	return o.memory[0]
}

// encode writes the message into buf, which has its size.
func (o *outgoing) encode(buf []byte) error {
	if m, ok := o.message.(generated); ok {
		_, err := m.MarshalToSizedBufferVT(buf)
		return err
	}
	_, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buf[:0], o.message)
	return err
}

// marshal encodes the message into a buffer that owns the charges of o until gRPC has
// written it to the connection or dropped it.
func (o *outgoing) marshal() (mem.BufferSlice, error) {
	o.encoded, o.since = true, time.Now()
	b := newAnswerBuffer(o.size)
	b.lost.Store(&o.answer)
	if err := o.encode(b.data); err != nil {
		b.Put(nil)
		return nil, err
	}
	o.message = nil
	o.conn.add(&o.answer)
	return mem.BufferSlice{mem.NewBuffer(&b.data, b)}, nil
}

// answer is an [outgoing] message that is encoded and unread: gRPC has not written it to the connection.
// Flow control makes gRPC wait until the caller reads. The connection lists the answer, and
// releases it when it closes, because gRPC then drops buffers without releasing them.
type answer struct {
	memory  []*budget.Lease // charged for the message
	tickets []*ticket       // of the fetches whose outcomes it has
	since   time.Time

	conn       *conn   // nil: unknown
	prev, next *answer // under the lock of conn
	listed     bool
	once       sync.Once
}

// release releases what the answer holds. It may be called again.
func (a *answer) release() {
	a.once.Do(func() {
		a.conn.remove(a)
		closeAll(a.memory)
		for _, t := range a.tickets {
			t.release()
		}
	})
}

func closeAll(leases []*budget.Lease) {
	for _, l := range leases {
		l.Close()
	}
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
