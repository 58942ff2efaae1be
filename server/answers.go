package server

import (
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"fetchd/internal/budget"
)

const (
	// unreadTime is how long an answer may lie unread. Then its connection is closed:
	// it is of no use to its caller either.
	unreadTime = 2 * time.Minute
	// answerOverhead is what grpc-go and we keep of a message besides its bytes.
	answerOverhead = 512
	// smallAnswer is the size of the smallest buffers: gRPC tells of the end of a buffer
	// only where it has more than 1 KiB.
	smallAnswer = 1152
	// longAnswer is the size of the largest buffers that are used again. A longer message
	// has a buffer of its own length.
	longAnswer = 32 << 10
)

// answerRooms are the sizes of the buffers that are used again, and answerPools keep
// them.
var (
	answerRooms = [...]int{smallAnswer, 4 << 10, 8 << 10, 16 << 10, longAnswer}
	answerPools [len(answerRooms)]sync.Pool // of *answerBuffer
)

// answerRoom returns the size of the buffer for a message, and where it is kept; nil:
// nowhere.
func answerRoom(size int) (int, *sync.Pool) {
	for i, room := range answerRooms {
		if size <= room {
			return room, &answerPools[i]
		}
	}
	return size, nil
}

// answerBytes is what a message of so many bytes is charged until it has been read.
func answerBytes(size int) int64 {
	room, _ := answerRoom(size)
	return int64(room) + answerOverhead
}

// outgoing is a message on its way to its caller, and what is held for it.
type outgoing struct {
	message proto.Message
	size    int
	caller  *conn           // nil: not known
	memory  []*budget.Lease // of the message
	tickets []*ticket       // of the fetches whose outcomes it brings
	sent    bool            // it was encoded: what is held is the buffer's from then on
}

// release gives back what is held, unless the message was encoded.
func (o *outgoing) release() {
	if !o.sent {
		(&answer{memory: o.memory, tickets: o.tickets}).release()
	}
}

// encode writes the message into buf, which is of its size.
func (o *outgoing) encode(buf []byte) error {
	if m, ok := o.message.(generated); ok {
		_, err := m.MarshalToSizedBufferVT(buf)
		return err
	}
	_, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buf[:0], o.message)
	return err
}

// marshal encodes the message into a buffer that holds what o does until gRPC has
// written it to the connection, or dropped it.
func (o *outgoing) marshal() (mem.BufferSlice, error) {
	o.sent = true
	a := &answer{memory: o.memory, tickets: o.tickets, conn: o.caller, since: time.Now()}
	b := newAnswerBuffer(o.size)
	b.holds(a)
	if err := o.encode(b.data); err != nil {
		b.Put(nil)
		return nil, err
	}
	a.conn.add(a)
	return mem.BufferSlice{mem.NewBuffer(&b.data, b)}, nil
}

// answer is a message that was encoded and is not read yet. It is in the list of its
// connection, which releases it where gRPC drops it without a word.
type answer struct {
	memory  []*budget.Lease
	tickets []*ticket
	since   time.Time

	conn       *conn
	prev, next *answer // under the lock of conn
	listed     bool
	once       sync.Once
}

// release gives back what the answer holds. It may be called again.
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

// answerBuffer is a buffer for one message, and the pool that gRPC gives it back to.
type answerBuffer struct {
	data  []byte
	whole []byte // all of data's room
	from  *sync.Pool
	lost  *lostAnswer
}

// lostAnswer is what is released if a buffer is collected before gRPC has given it back.
type lostAnswer struct {
	mu  sync.Mutex
	now *answer
}

func (l *lostAnswer) release() {
	l.mu.Lock()
	a := l.now
	l.now = nil
	l.mu.Unlock()
	if a != nil {
		a.release()
	}
}

func newAnswerBuffer(size int) *answerBuffer {
	room, pool := answerRoom(size)
	var b *answerBuffer
	if pool != nil {
		b, _ = pool.Get().(*answerBuffer)
	}
	if b == nil {
		b = &answerBuffer{whole: make([]byte, room), from: pool, lost: new(lostAnswer)}
		// What gRPC drops without a word is released when it is collected.
		runtime.AddCleanup(b, (*lostAnswer).release, b.lost)
	}
	b.data = b.whole[:size]
	return b
}

func (b *answerBuffer) holds(a *answer) {
	b.lost.mu.Lock()
	defer b.lost.mu.Unlock()
	b.lost.now = a
}

// Get implements mem.BufferPool. It is never called.
func (b *answerBuffer) Get(n int) *[]byte {
	p := make([]byte, n)
	return &p
}

// Put implements mem.BufferPool: gRPC is done with the buffer.
func (b *answerBuffer) Put(*[]byte) {
	b.lost.release()
	if b.from != nil {
		b.from.Put(b)
	}
}
