package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/conformance"
	"fetchd/conformance/kit"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/version"
)

// conformanceCmd is "fetchctl conformance".
type conformanceCmd struct {
	Target string `placeholder:"HOST:PORT" group:"Who is judged:" xor:"who" help:"The server of the contract at this address. Default: the service inside."`
	dial.Flags
	Wait time.Duration `placeholder:"DURATION" group:"Who is judged:" help:"Wait so long for the target to answer. Default: not at all."`

	Client      []string      `placeholder:"[NAME=]CMD" sep:"none" group:"Who is judged:" xor:"who" help:"An HTTP client: a command, split at spaces, to which the URL is added or put for {url}. Its body is standard output, or the file {out}. Repeatable."`
	ClientLimit time.Duration `placeholder:"DURATION" default:"30s" group:"Who is judged:" help:"End a client that has run so long. Default: ${default}."`

	OriginAddr string `placeholder:"HOST:PORT" group:"Origin:" help:"Listen there and on the ports after it, for a target that runs elsewhere. Default: ports of 127.0.0.1 that the system chooses."`
	OriginURL  string `name:"origin-url" placeholder:"BASE" group:"Origin:" help:"The same as the target sees it, such as http://origin.internal:9080; the ports after it lead to those after the other. Default: --origin-addr."`
	WriteCA    string `name:"write-ca" placeholder:"FILE" group:"Origin:" help:"Write the authority that signed the origin's certificates to FILE, for --egress-ca-file of a fetchd. It is new at each start."`

	Only     []string `placeholder:"RULE|NAME" group:"What is run:" help:"Only what is about this rule, or is called so. Repeatable."`
	List     bool     `group:"What is run:" help:"List the scenarios with their rules, and run none."`
	Jobs     int      `short:"j" default:"8" placeholder:"N" group:"What is run:" help:"Run so many at a time. Default: ${default}."`
	JSON     bool     `name:"json" group:"Report:" help:"Write the report as JSON."`
	Markdown string   `placeholder:"FILE" group:"Report:" help:"Write the report to FILE as Markdown, too."`
}

// run judges, and returns the exit status.
func (c *conformanceCmd) run(ctx context.Context, a *app) int {
	scenarios, vectors, err := c.chosen()
	if err != nil {
		return a.fail(ctx, c.Target, err)
	}
	if c.List {
		return a.conformanceList(ctx, scenarios)
	}
	var reports []kit.Report
	var blocked error
	if len(c.Client) > 0 {
		reports, err = c.clients(ctx, scenarios)
	} else {
		reports, blocked, err = c.server(ctx, scenarios, vectors)
	}
	if err != nil {
		return a.fail(ctx, c.Target, err)
	}
	if err := c.report(a, reports); err != nil {
		return a.fail(ctx, c.Target, err)
	}
	if blocked != nil {
		return a.fail(ctx, c.Target, blocked)
	}
	for i := range reports {
		if reports[i].Tally(anyResult).Failed > 0 {
			return cli.ExitFailed
		}
	}
	return cli.ExitOK
}

func anyResult(*kit.Result) bool { return true }

// chosen are the scenarios and vectors that --only leaves.
func (c *conformanceCmd) chosen() ([]*kit.Scenario, []conformance.Vector, error) {
	scenarios, err := kit.Load()
	if err != nil {
		return nil, nil, err
	}
	vectors, err := conformance.Vectors()
	if err != nil || len(c.Only) == 0 {
		return scenarios, vectors, err
	}
	for _, only := range c.Only {
		if !slices.ContainsFunc(scenarios, func(s *kit.Scenario) bool { return s.About(only) }) &&
			!slices.ContainsFunc(vectors, func(v conformance.Vector) bool { return vectorAbout(&v, only) }) {
			return nil, nil, cli.UsageError("--only", fmt.Sprintf("%q is neither a rule nor the name of a scenario or vector: fetchctl conformance --list tells them", only))
		}
	}
	scenarios = slices.DeleteFunc(scenarios, func(s *kit.Scenario) bool { return !slices.ContainsFunc(c.Only, s.About) })
	vectors = slices.DeleteFunc(vectors, func(v conformance.Vector) bool {
		return !slices.ContainsFunc(c.Only, func(only string) bool { return vectorAbout(&v, only) })
	})
	return scenarios, vectors, nil
}

func vectorAbout(v *conformance.Vector, only string) bool {
	return v.Name == only || v.Rule == strings.ToUpper(only)
}

// server judges the target. blocked says why its scenarios could not be run.
func (c *conformanceCmd) server(ctx context.Context, scenarios []*kit.Scenario, vectors []conformance.Vector) (reports []kit.Report, blocked, err error) {
	v, err := c.venue(scenarios)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = v.Close() }() // always nil
	svc, err := c.connect(v, scenarios)
	if err != nil {
		return nil, nil, err
	}
	defer svc.close()
	if err := c.await(ctx, svc); err != nil {
		return nil, nil, err
	}
	r := kit.Report{Subject: "the service inside", Version: "fetchd " + version.Long()}
	if c.Target != "" {
		r.Subject, r.Version = c.Target, ""
	}
	suite := &kit.Suite{Service: svc, Origin: v, Jobs: c.Jobs}
	if r.Results, err = suite.Vectors(ctx, vectors); err != nil {
		return nil, nil, err
	}
	reach, err := probe(ctx, svc, v, listenersOf(scenarios))
	if err != nil {
		return nil, nil, err
	}
	if reach.provider, err = probeProviders(ctx, svc, v, scenarios); err != nil {
		return nil, nil, err
	}
	suite.Skip = reach.skip
	results, err := suite.Scenarios(ctx, scenarios)
	if err != nil {
		return nil, nil, err
	}
	r.Results = append(r.Results, results...)
	return []kit.Report{r}, reach.blocked, nil
}

// venue opens the origin.
func (c *conformanceCmd) venue(scenarios []*kit.Scenario) (*venue, error) {
	v, err := openVenue(c.OriginAddr, c.OriginURL, scenarios)
	if err != nil || c.WriteCA == "" {
		return v, err
	}
	if err := os.WriteFile(c.WriteCA, v.CAPEM(), 0o644); err != nil {
		_ = v.Close() // always nil
		return nil, cli.OutputError(err)
	}
	return v, nil
}

// connect reaches the target, or starts the service inside.
func (c *conformanceCmd) connect(v *venue, scenarios []*kit.Scenario) (*service, error) {
	if c.Target == "" {
		return serveVenue(v, listenersOf(scenarios))
	}
	opts, err := c.Options()
	if err != nil {
		return nil, err
	}
	return dialTo("--target", c.Target, func() {}, opts...)
}

// reach is what of the origin a target can reach.
type reach struct {
	blocked  error  // why nothing; nil: something
	tls      string // why no listener with a good certificate; empty: all
	provider string // why not with an auth provider; empty: with all
}

func (r *reach) skip(s *kit.Scenario) string {
	switch {
	case r.blocked != nil:
		return "the target does not reach the origin"
	case r.tls != "" && trusted(s.Listener):
		return r.tls
	case r.provider != "" && s.AuthProvider() != "":
		return r.provider
	}
	return ""
}

// trusted tells the listeners that only answer who trusts the origin's authority.
func trusted(listener string) bool {
	return listener == "https" || listener == "https1" || listener == "h2fault"
}

// probe finds out what the target reaches before it is judged. An error is that of
// the call.
func probe(ctx context.Context, svc *service, v *venue, names []string) (*reach, error) {
	out, err := probeWith(ctx, svc, &pb.FetchRequest{Url: v.URL("http", "/s/probe/200")})
	if err != nil {
		return nil, err
	}
	switch class := out.GetError().GetErrorClass(); class {
	case pb.ErrorClass_ERROR_CLASS_UNSPECIFIED:
	case pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED:
		return &reach{blocked: v.forbidden(names)}, nil
	default:
		if len(v.Requests("probe")) == 0 {
			return &reach{blocked: cli.UsageError("--origin-url", fmt.Sprintf("the target does not reach the origin at %s (%s): give --origin-addr an address that it reaches",
				v.URL("http", "/"), label(class)))}, nil
		}
	}
	if !slices.ContainsFunc(names, trusted) {
		return &reach{}, nil
	}
	out, err = probeWith(ctx, svc, &pb.FetchRequest{Url: v.URL("https", "/s/probe/200")})
	if err != nil {
		return nil, err
	}
	if out.GetError().GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE {
		return &reach{tls: "the target does not trust the origin: --write-ca, then --egress-ca-file of the fetchd"}, nil
	}
	return &reach{}, nil
}

// probeProviders says why scenarios with an auth provider are not run; empty if they are.
func probeProviders(ctx context.Context, svc *service, v *venue, scenarios []*kit.Scenario) (string, error) {
	for _, s := range scenarios {
		name := s.AuthProvider()
		if name == "" {
			continue
		}
		_, err := probeWith(ctx, svc, &pb.FetchRequest{Url: v.URL("http", "/s/probe/200"), AuthProvider: name})
		switch code := status.Code(err); {
		case code == codes.InvalidArgument || code == codes.PermissionDenied:
			return "the target has no auth provider " + name + " for the origin: conformance/README.md has one", nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

func probeWith(ctx context.Context, svc *service, request *pb.FetchRequest) (*pb.FetchOutcome, error) {
	resp, err := svc.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: request})
	return resp.GetOutcome(), err
}

// forbidden says what a fetchd needs so that it may reach the origin.
func (v *venue) forbidden(names []string) error {
	ports, err := v.ports(names)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(v.URL("http", ""), "http://"))
	if err != nil {
		return err
	}
	flags := "--egress-allow-cidr " + host + "/32"
	if strings.HasPrefix(host, "127.") {
		flags = "--egress-allow-cidr 127.0.0.0/8"
	}
	for _, port := range ports {
		flags += fmt.Sprintf(" --egress-allow-port %d", port)
	}
	text := "the target's address guard forbids the origin; a fetchd needs " + flags
	if len(v.hosts) == 0 {
		text += " (and --origin-addr here, so that the ports stay the same)"
	}
	return cli.UsageError("--target", text)
}

// clients judges each command, with an origin of its own.
func (c *conformanceCmd) clients(ctx context.Context, scenarios []*kit.Scenario) ([]kit.Report, error) {
	var reports []kit.Report
	for _, text := range c.Client {
		cmd, err := kit.ParseCommand(text)
		if err != nil {
			return nil, cli.UsageError("--client", fmt.Sprintf("%q %v", text, err))
		}
		cmd.Limit = c.ClientLimit
		r, err := c.client(ctx, &cmd, scenarios)
		if err != nil {
			return nil, err
		}
		reports = append(reports, *r)
	}
	return reports, nil
}

func (c *conformanceCmd) client(ctx context.Context, cmd *kit.Command, scenarios []*kit.Scenario) (*kit.Report, error) {
	v, err := c.venue(scenarios)
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }() // always nil
	folder, err := os.MkdirTemp("", "fetchctl-conformance-")
	if err != nil {
		return nil, cli.OutputError(err)
	}
	defer func() { _ = os.RemoveAll(folder) }() // a temporary folder
	ca := folder + "/ca.pem"
	if err := os.WriteFile(ca, v.CAPEM(), 0o600); err != nil {
		return nil, cli.OutputError(err)
	}
	cmd.Env = append(withoutProxies(os.Environ()), "ORIGIN_CA="+ca)
	r := &kit.Report{Subject: cmd.Name, Command: strings.Join(cmd.Args, " ")}
	if strings.ContainsRune(cmd.Args[0], os.PathSeparator) { // it runs in a folder of its own
		if cmd.Args[0], err = filepath.Abs(cmd.Args[0]); err != nil {
			return nil, cli.UsageError("--client", fmt.Sprint(err))
		}
	}
	r.Version = cmd.Version(ctx)
	r.Results, err = cmd.Scenarios(ctx, scenarios, v, c.Jobs, func() (string, error) { return os.MkdirTemp(folder, "run-") })
	if err != nil {
		return nil, cli.UsageError("--client", fmt.Sprint(err))
	}
	return r, nil
}

// withoutProxies leaves out the variables that send clients elsewhere.
func withoutProxies(env []string) []string {
	return slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
}

// conformanceList prints the scenarios.
func (a *app) conformanceList(ctx context.Context, all []*kit.Scenario) int {
	p := a.painterFor(a.Out)
	for _, s := range all {
		if _, err := fmt.Fprintf(a.Out, "%s  %s\n  %s\n", p.paint(bold, s.Name), p.paint(dim, strings.Join(s.Rules, " ")), s.Story); err != nil {
			return a.fail(ctx, "", cli.OutputError(err))
		}
	}
	return cli.ExitOK
}

// await waits until the target answers, as long as the flag says.
func (c *conformanceCmd) await(ctx context.Context, svc *service) error {
	if c.Wait <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	_, err := svc.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 200}}, grpc.WaitForReady(true))
	return err
}
