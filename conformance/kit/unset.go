package kit

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "fetchd/gen/fetchd/v1"
)

// unset returns the fields of a response, at any depth, that the contract always sets and that are
// unset, such as "outcome.error.failure_type".
func unset(m proto.Message) []string { return appendUnset(nil, "", m.ProtoReflect()) }

func appendUnset(fields []string, path string, m protoreflect.Message) []string {
	for _, f := range required(m.Interface()) {
		if !f.set {
			fields = append(fields, path+f.name)
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		inner := path + string(field.Name()) + "."
		switch {
		case field.Message() == nil || field.IsMap(): // no map of the contract has messages
		case field.IsList():
			for i := range value.List().Len() {
				fields = appendUnset(fields, inner, value.List().Get(i).Message())
			}
		default:
			fields = appendUnset(fields, inner, value.Message())
		}
		return true
	})
	return fields
}

type requiredField struct {
	name string
	set  bool
}

// required returns the fields of a message that the contract always sets, and those that it sets to a
// value other than zero or not at all.
func required(m proto.Message) []requiredField {
	switch m := m.(type) {
	case *pb.FetchOutcome:
		return []requiredField{{"kind", m.GetKind() != 0}, {"error.stop_reason", m.GetError() == nil || m.GetError().GetStopReason() != 0}}
	case *pb.FetchError:
		return []requiredField{{"error_class", m.GetErrorClass() != 0}, {"failure_type", m.GetFailureType() != 0},
			{"phase", m.Phase == nil || m.GetPhase() != 0}, {"stop_reason", m.StopReason == nil || m.GetStopReason() != 0}}
	case *pb.RetryDecision:
		return []requiredField{{"next", m.GetRetry() != nil || m.GetStopReason() != 0}}
	case *pb.Retry:
		return []requiredField{{"delay_source", m.GetDelaySource() != 0}, {"start", m.GetStart() != 0}}
	case *pb.WarcRecord:
		return []requiredField{{"type", m.GetType() != 0}}
	case *pb.ExplainResponse:
		return []requiredField{{"next", m.GetNext() != nil}, {"kind", m.Kind == nil || m.GetKind() != 0}}
	}
	return nil
}
