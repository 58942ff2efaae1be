package kit

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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
