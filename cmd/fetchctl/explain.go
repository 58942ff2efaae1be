package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
)

// explainCmd is the command "fetchctl explain".
type explainCmd struct {
	Input string `arg:"" optional:"" name:"@FILE.json|-" help:"A fetchd.v1.ExplainRequest as JSON, instead of flags."`

	Rule string `placeholder:"RULE" help:"Print the meaning of a rule such as H6. The other flags have no effect."`

	Status   *int32   `short:"s" group:"Observation:" placeholder:"CODE" help:"Status of the response. Default: no response."`
	Header   []string `short:"H" sep:"none" group:"Observation:" placeholder:"NAME: VALUE" help:"Header of the response, such as Retry-After or Date. Repeatable."`
	Location string   `group:"Observation:" placeholder:"URL" help:"Location of the response: -H 'Location: URL'."`
	Fault    []string `group:"Observation:" placeholder:"CLASS" help:"An error other than the status, such as body_interrupted. Repeatable."`
	HopURL   string   `name:"hop-url" group:"Observation:" placeholder:"URL" help:"URL of the observed hop. Default: the URL of the fetch."`
	Auth     string   `enum:"none,refreshed,refresh_failed,refused_again,not_asked,challenged" default:"none" group:"Observation:" help:"What the auth provider did after a 401, or a 403 that asks for a signature: ${enum}. Default: ${default}."`
	At       string   `group:"Observation:" placeholder:"TIME" help:"Time of the observation in RFC 3339. A date in Retry-After counts from here if the response has no Date. Default: now."`

	Method        string         `short:"X" group:"State of the fetch:" placeholder:"METHOD" help:"Method of the fetch. Default: GET."`
	HopMethod     string         `group:"State of the fetch:" placeholder:"METHOD" help:"Method of the observed hop. Default: the method of the fetch."`
	URL           string         `name:"url" group:"State of the fetch:" placeholder:"URL" help:"URL of the fetch. Default: http://origin.example/"`
	Attempt       int32          `group:"State of the fetch:" placeholder:"N" help:"Number of the attempt that ended. Default: 1."`
	Redirects     int32          `group:"State of the fetch:" placeholder:"N" help:"Redirects followed in this attempt so far. Default: 0."`
	Conditional   bool           `group:"State of the fetch:" help:"The request was conditional."`
	BodyCommitted bool           `group:"State of the fetch:" help:"Body bytes were delivered, and the body cannot be continued."`
	TimeLeft      *time.Duration `group:"State of the fetch:" placeholder:"DURATION" help:"Time left for the fetch. Default: enough."`

	Profile            string         `enum:"standard,download" default:"standard" group:"Policy:" help:"Retry rules and waits: ${enum}. Default: ${default}."`
	MaxRetries         *int32         `short:"r" group:"Policy:" placeholder:"N" help:"Attempts after the first, 0 to 10. Default: 2, with --profile download 3."`
	MaxRetryAfter      *time.Duration `group:"Policy:" placeholder:"DURATION" help:"Maximum Retry-After to wait for. Default: 30s, with --profile download 60s."`
	MaxRedirects       *int32         `group:"Policy:" placeholder:"N" help:"Maximum number of redirects. Default: 5, with --profile download 20."`
	NoFollow           bool           `group:"Policy:" help:"Do not follow redirects."`
	IdempotencyKey     string         `group:"Policy:" placeholder:"KEY" help:"Idempotency key of the request. Default: none."`
	AllowNonIdempotent bool           `group:"Policy:" help:"Allow retries of POST and PATCH; requires --idempotency-key."`

	JSON bool `name:"json" group:"Output:" help:"Print the fetchd.v1.ExplainResponse as one line of JSON."`

	connection
}

// run explains and returns the exit code.
func (c *explainCmd) run(ctx context.Context, a *app) int {
	if c.Rule != "" {
		return a.fail(ctx, "", c.printRule(a))
	}
	req, err := c.request(ctx, a.In)
	if err != nil {
		return a.fail(ctx, "", err)
	}
	svc, err := c.connect(nil)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	defer svc.Close()
	resp, err := svc.Explain(ctx, req)
	if err != nil {
		return a.fail(ctx, c.Server, err)
	}
	if c.JSON {
		err = writeJSON(a.Out, resp)
	} else {
		out := &cli.Printer{W: a.Out}
		out.Printf("%s", show.Explanation(a.Painter(a.Out), req, resp))
		err = out.End()
	}
	return a.fail(ctx, c.Server, err)
}

// printRule prints the sentence of a rule, or a departure from the source documents.
func (c *explainCmd) printRule(a *app) error {
	id := strings.ToUpper(c.Rule)
	out := cli.Printer{W: a.Out}
	if sentence := rules.Sentence(id); sentence != "" {
		out.Printf("%s  %s\n", id, sentence)
		return out.End()
	}
	for _, d := range rules.Departures() {
		if d.ID == id {
			out.Printf("%s  A departure from %s: %s.\n  Here: %s.\n  Reason: %s.\n", id, d.Document, d.Says, d.Here, d.Cause)
			return out.End()
		}
	}
	return cli.UsageError("--rule", fmt.Sprintf("there is no rule %.20q: give one of docs/spec.md, such as H6", c.Rule))
}

// request returns the request that the flags describe, or reads one. Errors are usage errors,
// and that of ctx while standard input is read.
func (c *explainCmd) request(ctx context.Context, stdin io.Reader) (*pb.ExplainRequest, error) {
	req, err := c.fromFlags()
	if err == nil && c.Input == "" && req.GetResponse() == nil && len(req.GetErrorClasses()) == 0 {
		return nil, &cli.Error{Code: cli.ExitUsage, Err: errors.New("explain: needs what was observed: give --status CODE, --fault CLASS or both, or @FILE.json; or give --rule RULE"),
			Hint: "For example: fetchctl explain --status 503. Run \"fetchctl explain --help\" for the flags."}
	}
	if err != nil || c.Input == "" {
		return req, err
	}
	none := explainCmd{Auth: "none", Profile: "standard"}
	if unset, _ := none.fromFlags(); !proto.Equal(req, unset) {
		return nil, cli.UsageError(c.Input, "cannot be combined with flags that describe the observation: give one of the two")
	}
	name, isFile := strings.CutPrefix(c.Input, "@")
	if !isFile && name != "-" {
		return nil, cli.UsageError(c.Input, "is neither @FILE.json nor -")
	}
	text, err := cli.ReadInput(ctx, name, stdin, maxRequestBody)
	if err != nil {
		return nil, cli.InputError(c.Input, err)
	}
	req = new(pb.ExplainRequest)
	if err := protojson.Unmarshal(text, req); err != nil {
		return nil, cli.InputError(c.Input, err)
	}
	return req, nil
}

func (c *explainCmd) fromFlags() (*pb.ExplainRequest, error) {
	retry, err := c.retryPolicy()
	if err != nil {
		return nil, err
	}
	req := &pb.ExplainRequest{
		RetryPolicy: retry, RedirectPolicy: redirectPolicy(c.MaxRedirects, c.NoFollow),
		Method: c.Method, HopMethod: c.HopMethod, Url: c.URL, HopUrl: c.HopURL,
		Attempt: c.Attempt, RedirectCount: c.Redirects,
		Conditional: c.Conditional, BodyCommitted: c.BodyCommitted,
		AuthResult: pb.AuthResult(pb.AuthResult_value["AUTH_RESULT_"+strings.ToUpper(c.Auth)]), // "none" is not in the map: 0
	}
	if c.TimeLeft != nil {
		req.RemainingDuration = durationpb.New(*c.TimeLeft)
	}
	if req.Response, err = c.response(); err != nil {
		return nil, err
	}
	if req.ErrorClasses, err = c.faults(); err != nil {
		return nil, err
	}
	if c.At != "" {
		at, err := time.Parse(time.RFC3339Nano, c.At)
		if err != nil {
			return nil, cli.UsageError("--at", "is not a time in RFC 3339 such as 2026-03-01T12:00:00Z")
		}
		req.ObserveTime = timestamppb.New(at)
	}
	return req, cli.CheckUTF8(map[string]string{"--method": c.Method, "--hop-method": c.HopMethod, "--url": c.URL,
		"--hop-url": c.HopURL, "--idempotency-key": c.IdempotencyKey})
}

func (c *explainCmd) retryPolicy() (*pb.RetryPolicy, error) {
	get := getCmd{Profile: c.Profile, MaxRetries: (*retries)(c.MaxRetries), IdempotencyKey: c.IdempotencyKey}
	if err := get.check(); err != nil {
		return nil, err
	}
	p := get.retryPolicy()
	p.AllowNonIdempotent = c.AllowNonIdempotent
	if c.MaxRetryAfter != nil {
		p.MaxRetryAfter = durationpb.New(*c.MaxRetryAfter)
	}
	return p, nil
}

func (c *explainCmd) response() (*pb.HttpResponse, error) {
	lines := c.Header
	if c.Location != "" {
		lines = append(lines[:len(lines):len(lines)], "Location: "+c.Location)
	}
	if c.Status == nil {
		if len(lines) > 0 {
			return nil, cli.UsageError("--status", "is missing, but --header or --location describe a response")
		}
		return nil, nil
	}
	headers, err := headerLines("--header", lines)
	return &pb.HttpResponse{StatusCode: *c.Status, Headers: headers}, err
}

func (c *explainCmd) faults() ([]pb.ErrorClass, error) {
	var faults []pb.ErrorClass
	for _, name := range c.Fault {
		full := "ERROR_CLASS_" + strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(name, "-", "_")), "ERROR_CLASS_")
		class, ok := pb.ErrorClass_value[full]
		if !ok || class == 0 {
			return nil, cli.UsageError("--fault", "is not an error class: give one of "+classNames())
		}
		faults = append(faults, pb.ErrorClass(class))
	}
	return faults, nil
}

// classNames returns the classes as --fault accepts them.
func classNames() string {
	var names []string
	for n := int32(1); pb.ErrorClass_name[n] != ""; n++ {
		names = append(names, show.Label(pb.ErrorClass(n)))
	}
	return strings.Join(names, ", ")
}
