// Package explain shows what would be decided for an observation. It is what "fetchctl explain" does.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"fetchd/cmd/fetchctl/service"
	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
)

// Command is the command "fetchctl explain".
type Command struct {
	Input string `arg:"" optional:"" name:"@FILE.json|-" help:"A fetchd.v1.ExplainRequest as JSON, instead of flags."`

	Rule string `placeholder:"RULE" help:"Print the meaning of a rule such as H6, and its exceptions. The other flags have no effect."`

	Status *int32   `short:"s" group:"Observation:" placeholder:"CODE" help:"Status of the response. Default: no response."`
	Header []string `short:"H" sep:"none" group:"Observation:" placeholder:"NAME: VALUE" help:"Header of the response, such as Retry-After, Date or Location. Repeatable."`
	Fault  []string `group:"Observation:" placeholder:"CLASS" help:"An error other than the status, such as body_interrupted. Repeatable."`

	Method        string `short:"X" group:"State of the fetch:" placeholder:"METHOD" help:"Method of the fetch. Default: GET."`
	URL           string `name:"url" group:"State of the fetch:" placeholder:"URL" help:"URL of the fetch. Default: http://origin.example/"`
	Attempt       int32  `group:"State of the fetch:" placeholder:"N" help:"Number of the attempt that ended. Default: 1."`
	Redirects     int32  `group:"State of the fetch:" placeholder:"N" help:"Redirects followed in this attempt so far. Default: 0."`
	Conditional   bool   `group:"State of the fetch:" help:"The request was conditional."`
	BodyCommitted bool   `group:"State of the fetch:" help:"Body bytes were delivered, and the body cannot be continued."`

	service.Policies

	JSON bool `name:"json" group:"Output:" help:"Print the fetchd.v1.ExplainResponse as one line of JSON."`

	service.Connection
}

// Run explains and returns the exit code.
func (c *Command) Run(ctx context.Context, p *cli.Program) int {
	if c.Rule != "" {
		return service.Fail(ctx, p, "", c.printRule(p))
	}
	req, err := c.request(ctx, p.In)
	if err != nil {
		return service.Fail(ctx, p, "", err)
	}
	svc, err := c.Connect(nil)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer svc.Close()
	resp, err := svc.Explain(ctx, req)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	if c.JSON {
		err = service.WriteJSON(p.Out, resp)
	} else {
		out := &cli.Printer{W: p.Out}
		out.Printf("%s", show.Explanation(p.Painter(p.Out), req, resp))
		err = out.End()
	}
	return service.Fail(ctx, p, c.Server, err)
}

// printRule prints the sentence of a rule with its exceptions, or a departure from the source documents.
func (c *Command) printRule(p *cli.Program) error {
	id := strings.ToUpper(c.Rule)
	out := cli.Printer{W: p.Out}
	if sentence := rules.Sentence(id); sentence != "" {
		out.Printf("%s  %s\n", id, sentence)
		for _, r := range rules.Exceptions(id) {
			out.Printf("  Exception %s: %s\n", r.ID, r.Sentence)
		}
		for _, d := range rules.Departures() {
			if d.Amends(id) {
				out.Printf("  %s departs from %s: %s. Here: %s.\n", d.ID, d.Document, d.Says, d.Here)
			}
		}
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
func (c *Command) request(ctx context.Context, stdin io.Reader) (*pb.ExplainRequest, error) {
	req, err := c.fromFlags()
	if err == nil && c.Input == "" && req.GetResponse() == nil && len(req.GetErrorClasses()) == 0 {
		return nil, &cli.Error{Code: cli.ExitUsage, Err: errors.New("explain: needs what was observed: give --status CODE, --fault CLASS or both, or @FILE.json; or give --rule RULE"),
			Hint: "For example: fetchctl explain --status 503. Run \"fetchctl explain --help\" for the flags."}
	}
	if err != nil || c.Input == "" {
		return req, err
	}
	none := Command{Policies: service.Policies{Profile: "standard"}}
	if unset, _ := none.fromFlags(); !proto.Equal(req, unset) {
		return nil, cli.UsageError(c.Input, "cannot be combined with flags that describe the observation: give one of the two")
	}
	name, isFile := strings.CutPrefix(c.Input, "@")
	if !isFile && name != "-" {
		return nil, cli.UsageError(c.Input, "is neither @FILE.json nor -")
	}
	text, err := cli.ReadInput(ctx, name, stdin, service.MaxRequestBody)
	if err != nil {
		return nil, cli.InputError(c.Input, err)
	}
	req = new(pb.ExplainRequest)
	if err := protojson.Unmarshal(text, req); err != nil {
		return nil, cli.InputError(c.Input, err)
	}
	return req, nil
}

func (c *Command) fromFlags() (*pb.ExplainRequest, error) {
	retry, err := c.Retry()
	if err != nil {
		return nil, err
	}
	req := &pb.ExplainRequest{
		RetryPolicy: retry, RedirectPolicy: c.Redirect(),
		Method: c.Method, Url: c.URL, Attempt: c.Attempt, RedirectCount: c.Redirects,
		Conditional: c.Conditional, BodyCommitted: c.BodyCommitted,
	}
	if req.Response, err = c.response(); err != nil {
		return nil, err
	}
	if req.ErrorClasses, err = c.faults(); err != nil {
		return nil, err
	}
	return req, cli.CheckUTF8(map[string]string{"--method": c.Method, "--url": c.URL})
}

func (c *Command) response() (*pb.HttpResponse, error) {
	if c.Status == nil {
		if len(c.Header) > 0 {
			return nil, cli.UsageError("--status", "is missing, but --header describes a response")
		}
		return nil, nil
	}
	headers, err := service.Headers("--header", c.Header)
	return &pb.HttpResponse{StatusCode: *c.Status, Headers: headers}, err
}

func (c *Command) faults() ([]pb.ErrorClass, error) {
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
