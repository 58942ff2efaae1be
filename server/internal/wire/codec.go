// Package wire receives and sends the messages of gRPC. It limits their size and their number of
// elements, charges requests that arrive slowly, and knows what is unread on each connection.
package wire

import (
	"fmt"

	"fetchd/internal/badrequest"

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
	// longRequest is the length from which elements are counted before a request is decoded:
	// two bytes of a request can use more than a hundred bytes of memory.
	longRequest = 16 << 10
	// MaxElements limits the fields and list entries of a request and its messages.
	MaxElements = 32 << 10
)

// codec is the protobuf codec of gRPC, with limits on the memory of a request.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec of gRPC.
func NewCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// generated is a message of the contract. Its generated encoder needs a third of the time of the
// reflective one. It does not check that strings are UTF-8; package conversion ensures that.
type generated interface {
	SizeVT() int
	MarshalToSizedBufferVT(buf []byte) (int, error)
}

// SizeOf returns the size of an encoded message.
func SizeOf(m proto.Message) int {
	if m, ok := m.(generated); ok {
		return m.SizeVT()
	}
	return proto.Size(m)
}

// encoded is a message that encodes itself.
type encoded interface {
	Encode() (mem.BufferSlice, error)
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(encoded); ok {
		return m.Encode()
	}
	return c.CodecV2.Marshal(v)
}

// refused is a field number that no message uses. It marks a request that was not decoded, so that
// its call is refused like other invalid requests. gRPC would turn an error of the codec into
// INTERNAL.
const refused = protowire.MaxValidNumber

// refuseRequest marks m as a request that was not decoded because of a violation.
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
		left := MaxElements
		if at := overflow(m.ProtoReflect().Descriptor(), data.Materialize(), &left); at != "" {
			return refuseRequest(m, &errdetails.BadRequest_FieldViolation{Field: at,
				Description: fmt.Sprintf("is where the request exceeds %d fields and list entries: send fewer", MaxElements)})
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// CheckElements returns an error if a request was not decoded.
func CheckElements(v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return nil
	}
	unknown := m.ProtoReflect().GetUnknown()
	if number, _, n := protowire.ConsumeTag(unknown); n > 0 && number == refused {
		encoded, _ := protowire.ConsumeBytes(unknown[n:])
		wrong := new(errdetails.BadRequest_FieldViolation)
		if len(encoded) > badrequest.MaxBytes/2 || proto.Unmarshal(encoded, wrong) != nil { // the caller sent the field itself
			return status.Errorf(codes.InvalidArgument, "the request has a field with the number %d: leave it out", refused)
		}
		return badrequest.Single(wrong)
	}
	return nil
}

// overflow counts the elements of an encoded message. It returns the name of the field at which
// left falls below zero, or "". Bytes that it cannot parse are refused by the decoder.
func overflow(md protoreflect.MessageDescriptor, b []byte, left *int) string {
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
		*left--
		if fd != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			if inner := fd.Message(); inner != nil {
				if at := overflow(inner, value, left); at != "" {
					return string(fd.Name()) + "." + at
				}
			} else if k := fd.Kind(); fd.IsList() && k != protoreflect.StringKind && k != protoreflect.BytesKind {
				*left -= len(value) // packed: an element has at least one byte
			}
		}
		if *left < 0 {
			if fd == nil {
				return "unknown fields"
			}
			return string(fd.Name())
		}
		b = b[n:]
	}
	return ""
}
