package server

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// longRequest is looked through before it is decoded: two bytes of a request
	// can become more than a hundred of memory.
	longRequest = 16 << 10
	maxElements = 32 << 10 // fields of a request, those of its messages included
)

// codec is gRPC's own for protobuf, with bounds on the memory that a caller can
// make it take.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

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

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *outgoing:
		return m.marshal()
	case *healthAnswer:
		return m.marshal()
	}
	return c.CodecV2.Marshal(v)
}

// refused is the number of a field that no message has. It marks a request that
// was not decoded, so that its call is refused as any other that is not valid:
// an error of a codec is INTERNAL to gRPC.
const refused = protowire.MaxValidNumber

// refuseRequest marks m as a request that was not decoded, with what is wrong.
func refuseRequest(m proto.Message, wrong *errdetails.BadRequest_FieldViolation) error {
	encoded, err := proto.Marshal(wrong)
	if err != nil {
		return err
	}
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, refused, protowire.BytesType), encoded))
	return nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(proto.Message); ok && data.Len() > longRequest {
		room := maxElements
		if at := overflow(m.ProtoReflect().Descriptor(), data.Materialize(), &room); at != "" {
			return refuseRequest(m, &errdetails.BadRequest_FieldViolation{Field: at,
				Description: fmt.Sprintf("is where the request passes %d fields and list entries: send fewer", maxElements)})
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
		encoded, _ := protowire.ConsumeBytes(unknown[n:])
		wrong := new(errdetails.BadRequest_FieldViolation)
		if len(encoded) > maxViolationBytes/2 || proto.Unmarshal(encoded, wrong) != nil { // a caller has sent the field
			return status.Errorf(codes.InvalidArgument, "the request has a field of the number %d: leave it out", refused)
		}
		v := violations{fields: []*errdetails.BadRequest_FieldViolation{wrong}}
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
