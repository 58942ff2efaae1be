package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"text/tabwriter"
	"time"

	"fetchd/fetch"
	"fetchd/fetch/egress"
	"fetchd/fetch/urls"
	"fetchd/internal/cli"
	"fetchd/internal/policies"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/internal/version"
)

// fetchConfig returns the configuration of the fetch engine, and the authorities of --egress-ca-file.
func (s *settings) fetchConfig() (fetch.Config, []tlswatch.Certificate, error) {
	var known []tlswatch.Certificate
	cfg := fetch.Config{
		Egress: fetch.Egress{AllowCIDRs: s.EgressAllowCIDR, DenyCIDRs: s.EgressDenyCIDR,
			AllowPorts: s.EgressAllowPort, DenyHosts: s.EgressDenyHost},
		NeverReuse: s.EgressNoReuse,
		NameServer: s.EgressResolver,
		UserAgent:  s.UserAgent,
		OmitHops:   s.OmitHopsHeader,
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "fetchd/" + version.String()
	}
	if s.EgressProxy != "" {
		proxy, err := url.Parse(s.EgressProxy)
		if err != nil { // the error would contain the password
			return cfg, nil, errors.New("--egress-proxy: is not a URL")
		}
		cfg.Proxy = proxy
	}
	if s.EgressCAFile != "" {
		roots, added, err := authorities(s.EgressCAFile, secure.ReadFile)
		if err != nil {
			return cfg, nil, fmt.Errorf("--egress-ca-file: %w", err)
		}
		cfg.RootCAs, known = roots, tlswatch.Describe(tlswatch.EgressAuthority, "", added...)
	}
	return cfg, known, nil
}

// authorities returns the certificate authorities of the system and in the file, and those in the file
// alone.
func authorities(file string, read func(string) ([]byte, error)) (*x509.CertPool, []*x509.Certificate, error) {
	pem, err := read(file)
	if err != nil {
		return nil, nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, nil, err
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, nil, errors.New(file + " has no certificate in PEM")
	}
	return roots, tlswatch.Parse(pem), nil
}

// readIntermediates reads --egress-intermediates. It returns before if the file is as it was.
func (s *settings) readIntermediates(before *fetch.Intermediates) (*fetch.Intermediates, error) {
	if s.EgressIntermediates == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	text, err := secure.ReadFile(s.EgressIntermediates)
	if err == nil && before.IsOf(text) {
		return before, nil
	}
	var i *fetch.Intermediates
	if err == nil {
		if i, err = fetch.ParseIntermediates(text); err != nil {
			err = fmt.Errorf("%s %w: give those of intermediate authorities", s.EgressIntermediates, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--egress-intermediates: %w", err)
	}
	return i, nil
}

// egressCheck prints whether the settings allow a URL. The error is nil if they do.
func egressCheck(ctx context.Context, s *settings, stdout io.Writer) error {
	u, err := urls.Parse(s.EgressCheck.URL)
	if err != nil {
		_, _ = fmt.Fprintf(stdout, "invalid: the URL %v\n", err)
		return cli.PrintedError(cli.ExitUsage, "invalid")
	}
	policy, err := s.checkedPolicy()
	if err != nil {
		return unusable(err)
	}
	judged, err := judge(ctx, s, u, policy)
	if err != nil {
		if len(judged) > 0 {
			_, _ = fmt.Fprintf(stdout, "unknown: %s: the name is not forbidden, but its addresses could not be looked up\n", judged[0].Target)
		}
		return err
	}
	err = cli.PrintedError(cli.ExitFailed, "forbidden")
	for i, j := range judged {
		if !j.Open() {
			_, _ = fmt.Fprintf(stdout, "forbidden (P1): %s: %s: %s\n", j.Target, j.Reason, j.Remedy)
			continue
		}
		if i > 0 || len(judged) == 1 {
			note := j.Note
			if note != "" {
				note = " (" + note + ")"
			}
			_, _ = fmt.Fprintf(stdout, "allowed: %s%s\n", j.Target, note)
			err = nil
		}
	}
	if policy == nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "%s has the policy %q, mode %s\n", s.EgressCheck.Caller, policy.Name, policy.Mode())
	if route, _ := policy.Route(""); route != nil {
		_, _ = fmt.Fprintf(stdout, "the route %q: %s\n", route.Name, policies.Describe(route))
	}
	explain(stdout, u, judged, policy.Name)
	return err
}

// ruleNames are the rules of the settings and of a policy, by their reasons. A policy has no rule for the service itself.
var ruleNames = map[string]struct{ settings, policy string }{
	"scheme_not_allowed":  {"scheme", "schemes"},
	"port_not_allowed":    {"--egress-allow-port", "ports"},
	"name_denied":         {"--egress-deny-host", "deny-names"},
	"metadata_name":       {"names of metadata services", "names of metadata services"},
	"name_not_allowed":    {"names inside a network", "allow-names, names inside a network"},
	"own_listener":        {"listeners of this service", ""},
	"address_denied":      {"--egress-deny-cidr", "deny-addresses"},
	"address_not_allowed": {"--egress-allow-cidr", "allow-addresses"},
}

// explain prints what each rule of the settings and of a policy says about a URL and its addresses.
func explain(stdout io.Writer, u *url.URL, judged []fetch.Judgement, policy string) {
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "TARGET\tBY\tRULE\tRESULT")
	order := egress.NameOrder
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		order = egress.LiteralOrder
	} else if len(judged) == 1 {
		judged = append(judged, fetch.Judgement{Target: "its addresses"})
	}
	asked := true
	for _, j := range judged {
		if j.Target == "its addresses" {
			asked = false
		}
		for _, by := range []string{"", policy} {
			for _, reason := range order {
				rule := ruleNames[reason].settings
				if by != "" {
					rule = ruleNames[reason].policy
				}
				failed, result := asked && j.Reason == reason && j.Policy == by, "passed"
				switch {
				case rule == "":
					continue
				case failed:
					result = "failed"
				case !asked:
					result = "not asked"
				}
				asked = asked && !failed
				_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", j.Target, cmp.Or(by, "settings"), rule, result)
			}
		}
		asked, order = true, egress.AddressOrder
	}
	_ = t.Flush()
}

// judge checks a URL with the client that would fetch it.
func judge(ctx context.Context, s *settings, u *url.URL, policy *policies.Policy) ([]fetch.Judgement, error) {
	const limit = 10 * time.Second
	cfg, _, err := s.fetchConfig()
	if err != nil {
		return nil, err
	}
	at, err := s.ports()
	if err != nil {
		return nil, err
	}
	cfg.Egress.Own = own(at)
	c, err := fetch.New(cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var narrow fetch.Narrower
	var route *fetch.Route
	if policy != nil {
		enforced := policy.Enforced()
		judge := policies.NewJudge(enforced, func() *policies.Policy { return enforced }, func(policies.Denial) {})
		if route, _ = policy.Route(""); route != nil {
			judge.Route = route.Name
		}
		narrow = judge
	}
	return c.CheckTarget(ctx, u, narrow, route)
}
