package kit

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"fetchd/conformance"
	pb "fetchd/gen/fetchd/v1"
)

// Explain calls the service with a vector and returns the mismatches. It returns an error if the
// vector is malformed.
func Explain(ctx context.Context, service pb.FetchServiceClient, v *conformance.Vector) ([]Mismatch, error) {
	req, want := new(pb.ExplainRequest), new(pb.ExplainResponse)
	if err := protojson.Unmarshal(v.Request, req); err != nil {
		return nil, fmt.Errorf("%s: %s: request: %w", v.File, v.Name, err)
	}
	if err := protojson.Unmarshal(v.Response, want); err != nil {
		return nil, fmt.Errorf("%s: %s: response: %w", v.File, v.Name, err)
	}
	j := new(judgement)
	got, err := service.Explain(ctx, req)
	if err != nil {
		j.same("the call", "a response", err)
		return j.wrong, nil
	}
	j.explained(want, got)
	j.same("unset fields", "", strings.Join(unset(got), ", "))
	return j.wrong, nil
}

// explained compares everything except the fields that conformance/README.md excludes.
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
