package judge

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/conformance"
	"fetchd/conformance/kit"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// Select returns the scenarios and vectors that are about one of the rules or names in only:
// all of them if it is empty.
func Select(only []string) ([]*kit.Scenario, []conformance.Vector, error) {
	scenarios, err := kit.Load()
	if err != nil {
		return nil, nil, err
	}
	vectors, err := conformance.Vectors()
	if err != nil || len(only) == 0 {
		return scenarios, vectors, err
	}
	for _, want := range only {
		if !slices.ContainsFunc(scenarios, func(s *kit.Scenario) bool { return s.About(want) }) &&
			!slices.ContainsFunc(vectors, func(v conformance.Vector) bool { return vectorAbout(&v, want) }) {
			return nil, nil, cli.UsageError("--only", fmt.Sprintf("%q is neither a rule nor the name of a scenario or vector", want))
		}
	}
	scenarios = slices.DeleteFunc(scenarios, func(s *kit.Scenario) bool { return !slices.ContainsFunc(only, s.About) })
	vectors = slices.DeleteFunc(vectors, func(v conformance.Vector) bool {
		return !slices.ContainsFunc(only, func(only string) bool { return vectorAbout(&v, only) })
	})
	return scenarios, vectors, nil
}

// OfLevel returns those of a level.
func OfLevel(level string, scenarios []*kit.Scenario, vectors []conformance.Vector) ([]*kit.Scenario, []conformance.Vector, error) {
	if !slices.Contains(conformance.Levels, level) {
		return nil, nil, cli.UsageError("--level", fmt.Sprintf("%q is no level: give one of %s", level, strings.Join(conformance.Levels, ", ")))
	}
	scenarios = slices.DeleteFunc(scenarios, func(s *kit.Scenario) bool { return conformance.Level(s.Rules...) != level })
	vectors = slices.DeleteFunc(vectors, func(v conformance.Vector) bool { return conformance.Level(v.Rule) != level })
	return scenarios, vectors, nil
}

func vectorAbout(v *conformance.Vector, only string) bool {
	return v.Name == only || v.Rule == strings.ToUpper(only)
}

// Server judges a server of the contract, with jobs scenarios at a time. blocked says why the
// scenarios could not be run at all.
func Server(ctx context.Context, svc pb.FetchServiceClient, v *Venue, scenarios []*kit.Scenario, vectors []conformance.Vector, jobs int) (results []kit.Result, blocked, err error) {
	suite := &kit.Suite{Service: svc, Origin: v, Jobs: jobs}
	if results, err = suite.Vectors(ctx, vectors); err != nil {
		return nil, nil, err
	}
	reach, err := probe(ctx, svc, v, Listeners(scenarios))
	if err != nil {
		return nil, nil, err
	}
	if reach.provider, err = probeProviders(ctx, svc, v, scenarios); err != nil {
		return nil, nil, err
	}
	if reach.store, err = probeStores(ctx, svc, v, scenarios); err != nil {
		return nil, nil, err
	}
	suite.Skip = reach.skip
	wire, err := suite.Scenarios(ctx, scenarios)
	return append(results, wire...), reach.blocked, err
}

// Client judges an HTTP client by the requests that the origin sees, jobs scenarios at a time. An error that is no
// [cli.Error] is about the client.
func Client(ctx context.Context, c kit.Client, v *Venue, scenarios []*kit.Scenario, jobs int) (*kit.Report, error) {
	folder, err := os.MkdirTemp("", "fetch-conformance-")
	if err != nil {
		return nil, cli.OutputError(err)
	}
	defer func() { _ = os.RemoveAll(folder) }() // a temporary folder
	if err := c.Trust(v.CAPEM(), folder); err != nil {
		return nil, cli.OutputError(err)
	}
	r, err := c.Describe(ctx)
	if err != nil {
		return nil, err
	}
	r.Results, err = kit.ClientScenarios(ctx, c, scenarios, v, jobs, func() (string, error) { return os.MkdirTemp(folder, "run-") })
	return r, err
}

// WithoutProxies returns env without the variables that send clients to a proxy.
func WithoutProxies(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
}

// reach is the part of the origin that a service can reach.
type reach struct {
	blocked  error  // why it reaches nothing; nil if it reaches something
	tls      string // why it reaches no listener with a good certificate; empty if it does
	provider string // why it lacks an auth provider; empty if it has all
	store    string // why it lacks a store; empty if it has all
}

func (r *reach) skip(s *kit.Scenario) string {
	switch {
	case r.blocked != nil:
		return "the service does not reach the origin"
	case r.tls != "" && trusted(s.Listener):
		return r.tls
	case r.provider != "" && s.AuthProvider() != "":
		return r.provider
	case r.store != "" && s.Store() != "":
		return r.store
	}
	return ""
}

// trusted reports whether a listener only serves clients that trust the origin's authority.
func trusted(listener string) bool {
	return listener == "https" || listener == "https1" || listener == "h2fault"
}

// probe finds out what the service reaches, before it is judged. It returns an error only if the
// call fails.
func probe(ctx context.Context, svc pb.FetchServiceClient, v *Venue, names []string) (*reach, error) {
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
			return &reach{blocked: cli.UsageError("--origin-url", fmt.Sprintf("the service does not reach the origin at %s (%s): give --origin-addr an address that it reaches",
				v.URL("http", "/"), strings.ToLower(strings.TrimPrefix(class.String(), "ERROR_CLASS_"))))}, nil
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
		return &reach{tls: "the service does not trust the origin: use --write-ca, then --egress-ca-file of fetchd"}, nil
	}
	return &reach{}, nil
}

// probeProviders returns the reason why scenarios with an auth provider cannot run, or "".
func probeProviders(ctx context.Context, svc pb.FetchServiceClient, v *Venue, scenarios []*kit.Scenario) (string, error) {
	for _, s := range scenarios {
		name := s.AuthProvider()
		if name == "" {
			continue
		}
		_, err := probeWith(ctx, svc, &pb.FetchRequest{Url: v.URL("http", "/s/probe/200"), AuthProvider: name})
		switch code := status.Code(err); {
		case code == codes.InvalidArgument || code == codes.PermissionDenied:
			return "the service has no auth provider " + name + " for the origin: docs/conformance.md shows one", nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// probeStores returns the reason why scenarios with a store cannot run, or "".
func probeStores(ctx context.Context, svc pb.FetchServiceClient, v *Venue, scenarios []*kit.Scenario) (string, error) {
	at := slices.IndexFunc(scenarios, func(s *kit.Scenario) bool { return s.Store() != "" })
	if at < 0 {
		return "", nil
	}
	name := scenarios[at].Store()
	_, err := probeWith(ctx, svc, &pb.FetchRequest{Url: v.URL("http", "/s/probe/200"),
		BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: name, Key: "probe"}}}})
	switch code := status.Code(err); {
	case code == codes.InvalidArgument || code == codes.PermissionDenied:
		return "the service has no store " + name + ": docs/conformance.md shows one", nil
	case err != nil:
		return "", err
	}
	return "", nil
}

func probeWith(ctx context.Context, svc pb.FetchServiceClient, request *pb.FetchRequest) (*pb.FetchOutcome, error) {
	resp, err := svc.FetchUnary(ctx, request)
	return resp.GetOutcome(), err
}

// forbidden returns an error with the flags that allow a fetchd to reach the origin.
func (v *Venue) forbidden(names []string) error {
	ports, err := v.Ports(names)
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
	return cli.UsageError("HOST:PORT", "the service's egress policy forbids the origin; a fetchd needs "+flags)
}
