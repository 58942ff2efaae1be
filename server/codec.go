package server

import (
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// longAnswer is what grpc-go takes from a pool of buffers of 1 MiB. It gets a
	// buffer of its own length in place of that, and is counted while nobody reads
	// it.
	longAnswer = 32 << 10
	// longRequest is looked through before it is decoded: two bytes of a request
	// can become more than a hundred of memory.
	longRequest = 16 << 10
	maxElements = 32 << 10 // fields of a request, those of its messages included
)

// codec is gRPC's own for protobuf, with bounds on the memory that a caller can
// make it take.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// unread is a message whose memory is counted until it is sent or dropped.
type unread struct {
	sized
	patience *time.Timer // for as long as it is on its way
	released func()
}

// generated is a message of the contract. Its encoder is generated too, and takes a
// third of the time of the one that goes by descriptors. It does not look whether
// strings are UTF-8, which [text] has seen to.
type generated interface {
	SizeVT() int
	MarshalToSizedBufferVT(buf []byte) (int, error)
}

func sizeOf(m proto.Message) int {
	if m, ok := m.(generated); ok {
		return m.SizeVT()
	}
	return proto.Size(m)
}

// sized is a message whose size has just been counted, which takes as long as
// encoding it.
type sized struct {
	message proto.Message
	size    int
}

func measured(m proto.Message) sized { return sized{m, sizeOf(m)} }

// encode writes the message into buf, which is of its size.
func (s sized) encode(buf []byte) error {
	if m, ok := s.message.(generated); ok {
		_, err := m.MarshalToSizedBufferVT(buf)
		return err
	}
	_, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buf[:0], s.message)
	return err
}

func (s sized) marshal() (mem.BufferSlice, error) {
	if mem.IsBelowBufferPoolingThreshold(s.size) {
		data := make([]byte, s.size)
		return mem.BufferSlice{mem.SliceBuffer(data)}, s.encode(data)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(s.size)
	if err := s.encode(*buf); err != nil {
		pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if short, ok := v.(sized); ok {
		return short.marshal()
	}
	u, long := v.(*unread)
	if !long {
		return c.CodecV2.Marshal(v)
	}
	data := make([]byte, u.size)
	if err := u.encode(data); err != nil || len(data) == 0 {
		u.patience.Stop()
		u.released()
		return nil, err
	}
	released := sync.OnceFunc(u.released)
	// What is never sent grpc-go lets go of without a word. The timer is left alone
	// there: a cleanup runs outside the synctest bubble that a timer may be of.
	runtime.AddCleanup(&data[0], func(released func()) { released() }, released)
	return mem.BufferSlice{mem.NewBuffer(&data, &returned{u.patience, released})}, nil
}

// returned is a mem.BufferPool of one buffer: it hears when that is done with.
type returned struct {
	patience *time.Timer
	released func()
}

// Get implements mem.BufferPool.
func (r *returned) Get(n int) *[]byte {
	p := make([]byte, n)
	return &p
}

// Put implements mem.BufferPool.
func (r *returned) Put(*[]byte) {
	r.patience.Stop()
	r.released()
}

// refused is the number of a field that no message has. It marks a request that
// was not decoded, so that its call is refused as any other that is not valid:
// an error of a codec is INTERNAL to gRPC.
const refused = protowire.MaxValidNumber

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(proto.Message); ok && data.Len() > longRequest {
		room := maxElements
		if at := overflow(m.ProtoReflect().Descriptor(), data.Materialize(), &room); at != "" {
			m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, refused, protowire.BytesType), at))
			return nil
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// checkElements refuses a request that was not decoded.
func checkElements(v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return nil
	}
	unknown := m.ProtoReflect().GetUnknown()
	if number, _, n := protowire.ConsumeTag(unknown); n > 0 && number == refused {
		at, _ := protowire.ConsumeString(unknown[n:])
		var v violations
		v.add(at, "is where the request passes %d fields and list entries: send fewer", maxElements)
		return v.err()
	}
	return nil
}

// overflow counts the elements of a message that is not decoded yet, and names
// the field at which there is no room left. What it cannot read the decoder
// refuses.
func overflow(md protoreflect.MessageDescriptor, b []byte, room *int) string {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return ""
		}
		fd := md.Fields().ByNumber(number)
		*room--
		if fd != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			if inner := fd.Message(); inner != nil {
				if at := overflow(inner, value, room); at != "" {
					return string(fd.Name()) + "." + at
				}
			} else if k := fd.Kind(); fd.IsList() && k != protoreflect.StringKind && k != protoreflect.BytesKind {
				*room -= len(value) // packed: an element has a byte at least
			}
		}
		if *room < 0 {
			if fd == nil {
				return "unknown fields"
			}
			return string(fd.Name())
		}
		b = b[n:]
	}
	return ""
}
