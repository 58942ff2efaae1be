package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"fetchd/fetch/egress"
	"fetchd/internal/cli"
	"fetchd/internal/policies"
	"fetchd/internal/secure"
)

// readPolicies reads --policies-file. Policies that are as they were before are not parsed again.
func (s *settings) readPolicies(before *policies.Set) (*policies.Set, error) {
	if s.PoliciesFile == "" {
		return nil, nil //nolint:nilnil // no policies
	}
	found, err := policies.Read(s.PoliciesFile, before)
	if err != nil {
		return nil, fmt.Errorf("--policies-file: %w", err)
	}
	return found, nil
}

// checkedPolicy returns the policy of --caller, or nil if there is none to ask.
func (s *settings) checkedPolicy() (*policies.Policy, error) {
	set, err := s.readPolicies(nil)
	if err != nil || s.EgressCheck.Caller == "" {
		return nil, err
	}
	if set == nil {
		return nil, errors.New("--caller needs --policies-file: name the file of the service")
	}
	address, isAddress := strings.CutPrefix(s.EgressCheck.Caller, "address:")
	addr, err := netip.ParseAddr(address)
	switch {
	case err == nil && isAddress:
		return set.Of("", addr), nil
	case err == nil:
		return nil, fmt.Errorf("--caller: %s is an address, which is no name of a caller: give address:%s for the callers that have no name", address, address)
	case isAddress:
		return nil, fmt.Errorf("--caller: %.60q is not an address: give address:10.1.2.3, or a name", address)
	}
	return set.Of(s.EgressCheck.Caller, netip.Addr{}), nil
}

// checkPolicies prints what is wrong with a file of policies, or what it says.
func (s *settings) checkPolicies(stdout io.Writer) error {
	set, err := policies.Read(s.Policies.Check.File, nil)
	if err != nil {
		_, _ = fmt.Fprintln(stdout, err)
		return cli.PrintedError(cli.ExitUsage, "faults")
	}
	for _, p := range set.Policies() {
		if _, err := fmt.Fprintf(stdout, "%s (%s): %s\n", p.Name, p.Mode(), strings.Join(set.Callers(p), ", ")); err != nil {
			return err
		}
		if closed := s.closedPorts(p); len(closed) > 0 {
			if _, err := fmt.Fprintf(stdout, "%s has ports that no setting opens: give the service --egress-allow-port %s\n", p.Name, strings.Trim(fmt.Sprint(closed), "[]")); err != nil {
				return err
			}
		}
	}
	names, err := s.knownCallers()
	if err != nil {
		return unusable(err)
	}
	if len(names) == 0 {
		return nil
	}
	others, unused := set.Match(names)
	if len(others) > 0 {
		_, err = fmt.Fprintf(stdout, "without an entry, so they have %s: %s\n", set.Default().Name, strings.Join(others, ", "))
	}
	if len(unused) > 0 && err == nil {
		_, err = fmt.Fprintf(stdout, "entries that match none of these names: %s\n", strings.Join(unused, ", "))
		err = cmp.Or(err, cli.PrintedError(cli.ExitFailed, "entries without a caller"))
	}
	return err
}

// closedPorts returns the ports of a policy that the settings do not open, if there are settings.
func (s *settings) closedPorts(p *policies.Policy) (closed []uint16) {
	if s.ConfigFile == "" && len(s.EgressAllowPort) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Ports), func(port uint16) bool {
		return port == 80 || port == 443 || slices.Contains(s.EgressAllowPort, port)
	})
}

// knownCallers returns the names that callers have by --token-file or --tls-allow-san.
func (s *settings) knownCallers() (names []string, err error) {
	callers := &secure.Callers{SANs: s.TLSAllowSAN}
	if s.TokenFile != "" {
		if callers.Tokens, err = secure.ReadTokens(s.TokenFile); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
	}
	return callers.Names(), nil
}

// unusedEntries returns the entries of policies, origins and stores that match none of the callers, whose names must be
// known.
func (f *files) unusedEntries(callers []string) (unused []string) {
	if len(callers) == 0 {
		return nil
	}
	if f.policies != nil {
		_, unused = f.policies.Match(callers)
	}
	named := f.stores.Callers()
	for _, p := range f.origins.providers {
		named = append(named, p.Callers...)
	}
	for _, p := range f.origins.profiles {
		named = append(named, p.Callers...)
	}
	slices.Sort(named)
	return append(unused, slices.DeleteFunc(slices.Compact(named), func(name string) bool {
		return slices.Contains(callers, name) || slices.Contains(unused, name)
	})...)
}

// setCallers names the callers in the metrics, and logs the policies of others.
func (l *live) setCallers(names []string) {
	l.observer.SetCallers(names)
	if unused := l.unusedEntries(names); len(unused) > 0 {
		l.logger.Warn("entries of the settings files match no caller", slog.Any("entries", unused))
	}
}

// logLine has the keys of the service's log that the report reads.
type logLine struct {
	Msg, Caller, Policy, Reason, Host, Target string

	Changed []string
	Rule    string `json:"policy_rule"`
	Count   int
}

// maxLogLine limits a line of a log. The service writes shorter ones.
const maxLogLine = 1 << 20

// readLog passes on the lines of a log in JSON. Lines of other programs are left out, but a file without any line of
// the service is an error.
func readLog(name string, take func(*logLine)) error {
	file, err := os.Open(name)
	if err != nil {
		return unusable(err)
	}
	defer func() { _ = file.Close() }()
	scanner, known := bufio.NewScanner(file), false
	scanner.Buffer(nil, maxLogLine)
	for scanner.Scan() {
		var line logLine
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.Msg != "" {
			known = true
			take(&line)
		}
	}
	switch {
	case scanner.Err() != nil:
		return unusable(fmt.Errorf("%s: %w", name, scanner.Err()))
	case !known:
		return unusable(fmt.Errorf("%s: has no line of the service in JSON: run it with --log-format json", name))
	}
	return nil
}

// reportPolicies sums up the lines "policy would deny" of a log since the policies were read.
func reportPolicies(name string, out io.Writer) error {
	type denial struct{ policy, host, reason, rule, target string }
	counts, callers := make(map[denial]int), make(map[denial]map[string]bool)
	err := readLog(name, func(line *logLine) {
		if line.Msg == "serving" || line.Msg == "reloaded" && slices.Contains(line.Changed, "policies-file") {
			clear(counts) // what was denied before says nothing about the policies of now
			clear(callers)
		}
		if line.Msg != "policy would deny" {
			return
		}
		d := denial{line.Policy, line.Host, line.Reason, line.Rule, line.Target}
		if counts[d] += max(line.Count, 1); callers[d] == nil {
			callers[d] = make(map[string]bool)
		}
		callers[d][line.Caller] = true
	})
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "POLICY\tHOST\tREASON\tRULE\tTIMES\tCALLERS\tTO PERMIT IT")
	for _, d := range slices.SortedFunc(maps.Keys(counts), func(a, b denial) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), counts[b]-counts[a], cmp.Compare(a.host, b.host), cmp.Compare(a.reason, b.reason), cmp.Compare(a.rule, b.rule), cmp.Compare(a.target, b.target))
	}) {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", d.policy, cmp.Or(d.host, "(others)"), d.reason, d.rule, counts[d], len(callers[d]), permitting(d.reason, d.host, d.rule, d.target))
	}
	return t.Flush()
}

// permitting returns the change of a policy that would permit what it denied.
func permitting(reason, host, rule, target string) string {
	if rule == egress.Nothing {
		return "remove " + rule
	}
	switch reason {
	case "name_not_allowed":
		switch _, err := netip.ParseAddr(host); {
		case err == nil: // allow-names takes no address
			return "add " + host + " to allow-addresses"
		case host == "": // of many hosts
			return "add the hosts to allow-names"
		case egress.IsInside(host): // allow-names, where there are none, would forbid all other names
			return "add its address to allow-addresses; add " + host + " to allow-names only if the policy has these"
		}
		return "add " + host + " to allow-names"
	case "name_denied":
		return "remove " + rule + " from deny-names"
	case "address_denied":
		return "remove " + rule + " from deny-addresses"
	case "address_not_allowed":
		return "add " + cmp.Or(target, "the address") + " to allow-addresses"
	case "port_not_allowed":
		return "add " + cmp.Or(target, "the port") + " to ports; to ports that are not there, add 80 and 443 too"
	case "scheme_not_allowed":
		return "add " + cmp.Or(target, "the scheme") + " to schemes"
	case "route_not_allowed":
		return "nothing: the fetch began before the policy had a route"
	}
	if key := map[string]string{"method": "methods", "auth_provider": "auth-providers", "store": "stores", "record_store": "record-stores", "label": "required-labels", "total_timeout": "max-total-timeout"}[reason]; key != "" {
		return "change " + key + " in request"
	}
	switch key := strings.ReplaceAll(reason, "_", "-"); key {
	case "fetches-in-flight", "fetches-per-second", "memory":
		return "raise " + key + " in share"
	default:
		return "change " + key + " in request"
	}
}
