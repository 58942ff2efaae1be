package tools

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/rules"
)

func explainTool() *sdk.Tool {
	return &sdk.Tool{
		Name:        "explain",
		Title:       "Explain a failed fetch",
		Description: `Says what follows from a failure: by which rule it is classified, whether another attempt is made, after which wait, and whether a later fetch may succeed. Describe a status or a fault, or both. Nothing is fetched.`,
		InputSchema: object{
			"type": "object",
			"properties": object{
				"status":      object{"type": "integer", "minimum": 100, "maximum": 999, "description": "Status of the response."},
				"fault":       object{"type": "string", "enum": faults(), "description": "An error other than the status."},
				"retry_after": object{"type": "string", "description": "Retry-After of the response: seconds or a date."},
				"method":      object{"type": "string", "default": http.MethodGet, "description": "Method of the request."},
				"attempt":     object{"type": "integer", "default": 1, "minimum": 1, "description": "Number of the attempt that failed."},
			},
			"additionalProperties": false,
		},
		OutputSchema: schemaOf(new(pb.ExplainResponse).ProtoReflect().Descriptor(), nil),
		Annotations:  &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)},
	}
}

// faults returns the error classes as the model writes them.
func faults() []string {
	var names []string
	for n := int32(1); pb.ErrorClass_name[n] != ""; n++ {
		names = append(names, show.Label(pb.ErrorClass(n)))
	}
	return names
}

func readExplain(a *arguments) (*pb.ExplainRequest, string) {
	const maxAttempt = 11
	req := &pb.ExplainRequest{Method: "", Attempt: int32(a.integer("attempt", 1, 1, maxAttempt))}
	req.Method = a.text("method")
	if code := a.integer("status", 0, 100, 999); code != 0 {
		req.Response = &pb.HttpResponse{StatusCode: int32(code)}
	}
	if after := a.text("retry_after"); after != "" {
		if req.Response == nil {
			a.reject("retry_after", "give the status of the response too")
		} else {
			req.Response.Headers = []*pb.Header{{Name: "Retry-After", Value: after}}
		}
	}
	if name := a.text("fault"); name != "" {
		class := pb.ErrorClass_value["ERROR_CLASS_"+strings.ToUpper(name)]
		if class == 0 {
			a.reject("fault", "give one of "+strings.Join(faults(), ", "))
		}
		req.ErrorClasses = []pb.ErrorClass{pb.ErrorClass(class)}
	}
	if req.Response == nil && req.ErrorClasses == nil && len(a.faults) == 0 {
		a.faults = append(a.faults, "status and fault are missing: give one of them.")
	}
	return req, a.fault()
}

// explain runs the tool.
func (t *tools) explain(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	observed, fault := readExplain(readArguments(req.Params.Arguments))
	if fault != "" {
		return failuref("%s", fault), nil
	}
	resp, err := t.Service.Explain(ctx, observed)
	if err != nil {
		return refused(ctx, err)
	}
	structured, err := messageJSON(resp)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: texts(explanation(resp)), StructuredContent: structured}, nil
}

// explanation returns an answer in sentences.
func explanation(resp *pb.ExplainResponse) string {
	if step := resp.GetRedirect(); step != nil {
		return fmt.Sprintf("The redirect is followed: %s %s.", step.GetMethod(), step.GetUrl())
	}
	e, d := resp.GetError(), resp.GetRetryDecision()
	if e == nil {
		return "This is not a failure: " + show.Label(resp.GetKind()) + "."
	}
	lines := []string{fmt.Sprintf("%s, %s.", show.Label(e.GetErrorClass()), show.Label(e.GetFailureType())), later(e), "Decision: " + show.Decision(d) + "."}
	for i, rule := range []string{e.GetClassRule(), d.GetRule()} {
		if sentence := rules.Sentence(rule); sentence != "" && (i == 0 || rule != e.GetClassRule()) {
			lines = append(lines, fmt.Sprintf("Rule %s: %s", rule, sentence))
		}
	}
	return strings.Join(lines, "\n")
}
