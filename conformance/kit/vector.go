package kit

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fetchd/conformance"
	"fetchd/conformance/mapping"
	pb "fetchd/gen/fetchd/v1"
)

// Explain calls the service with a vector and returns the mismatches.
func Explain(ctx context.Context, service pb.FetchServiceClient, v *conformance.Vector) []Mismatch {
	j := new(judgement)
	got, err := service.Explain(ctx, mapping.ExplainRequest(&v.Observation))
	if err != nil {
		j.same("the call", "a response", err)
		return j.wrong
	}
	j.explained(mapping.ExplainResponse(&v.Observation, &v.Verdict), got)
	j.same("unset fields", "", strings.Join(unset(got), ", "))
	return j.wrong
}

// Ask sets the verdicts of vectors to what the service decides, and their rules to the deciding ones.
func Ask(ctx context.Context, service pb.FetchServiceClient, vectors []conformance.Vector) error {
	for i := range vectors {
		v := &vectors[i]
		got, err := service.Explain(ctx, mapping.ExplainRequest(&v.Observation))
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		v.Verdict = *mapping.Verdict(got)
		if f := v.Verdict.Failure; f != nil && f.Class == "redirect_rejected" {
			f.Reason = "" // several can apply, and no rule says which comes first
		}
		if v.Rule = "D8"; v.Verdict.Decision != nil {
			v.Rule = v.Verdict.Decision.Rule
		}
	}
	return nil
}

// explained compares everything except the fields that docs/conformance.md excludes.
func (j *judgement) explained(want, got *pb.ExplainResponse) {
	j.same("kind", want.GetKind(), got.GetKind())
	e := proto.CloneOf(got.GetError())
	if e != nil {
		e.Message, e.Detail, e.Phase, e.Url = "", "", nil, ""
		if want.GetError().GetReason() == "" {
			e.Reason = ""
		}
	}
	j.message("error", want.GetError(), e)
	j.message("decision", want.GetRetryDecision(), got.GetRetryDecision())
	j.message("redirect", want.GetRedirect(), got.GetRedirect())
}

func (j *judgement) message(what string, want, got proto.Message) {
	if !proto.Equal(want, got) {
		j.wrong = append(j.wrong, Mismatch{what, messageText(want), messageText(got)})
	}
}

func messageText(m proto.Message) string {
	if !m.ProtoReflect().IsValid() {
		return "none"
	}
	return protojson.MarshalOptions{UseProtoNames: true}.Format(m)
}

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
