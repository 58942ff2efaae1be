package policies

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"fetchd/fetch/egress"
	"fetchd/fetch/urls"
	"fetchd/internal/secure"
	"fetchd/internal/typo"
)

// File is the form of --policies-file.
type File struct {
	Routes   map[string]routeText  `yaml:"routes"`
	Policies map[string]policyText `yaml:"policies"`
	Callers  []callerText          `yaml:"callers"`
	Default  text                  `yaml:"default"`
}

type policyText struct {
	Mode     text        `yaml:"mode"`
	ToCaller bool        `yaml:"report-to-caller"`
	Permit   text        `yaml:"permit"`
	Egress   egressText  `yaml:"egress"`
	Request  requestText `yaml:"request"`
	Share    shareText   `yaml:"share"`
}

type shareText struct {
	FetchesInFlight  text `yaml:"fetches-in-flight"`
	Memory           text `yaml:"memory"`
	FetchesPerSecond text `yaml:"fetches-per-second"`
	Burst            text `yaml:"burst"`
}

type egressText struct {
	AllowNames     []text `yaml:"allow-names"`
	DenyNames      []text `yaml:"deny-names"`
	AllowAddresses []text `yaml:"allow-addresses"`
	DenyAddresses  []text `yaml:"deny-addresses"`
	Public         text   `yaml:"public-addresses"`
	Ports          []text `yaml:"ports"`
	Schemes        []text `yaml:"schemes"`
	Redirects      text   `yaml:"redirects"`
	Route          text   `yaml:"route"`
	Routes         []text `yaml:"routes"`
}

type requestText struct {
	Methods              []text `yaml:"methods"`
	Providers            []text `yaml:"auth-providers"`
	Stores               []text `yaml:"stores"`
	Records              []text `yaml:"record-stores"`
	Labels               []text `yaml:"required-labels"`
	MaxTotalTimeout      text   `yaml:"max-total-timeout"`
	MaxSizeBytes         text   `yaml:"max-size-bytes"`
	MaxAttempts          text   `yaml:"max-attempts"`
	MaxRedirects         text   `yaml:"max-redirects"`
	NonIdempotentRetries text   `yaml:"non-idempotent-retries"`
}

type callerText struct {
	Caller  text `yaml:"caller"`
	Address text `yaml:"address"`
	Policy  text `yaml:"policy"`
}

// text is a value with its line. The line is 0 if the value is absent.
type text struct {
	value string
	line  int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: give one value", n.Line)}}
	}
	t.value, t.line = n.Value, n.Line
	return nil
}

// Read reads a file of policies and the credentials of its routes. It returns before, which may be nil, if they
// have not changed. The error names every fault with its line.
func Read(path string, before *Set) (*Set, error) {
	raw, err := secure.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if before != nil && len(before.routes) == 0 && bytes.Equal(raw, before.raw) {
		return before, nil
	}
	s, faults := parse(raw, before)
	switch {
	case len(faults) > 0:
	case s.Same(before):
		return before, nil
	default:
		return s, nil
	}
	errs := make([]error, 0, len(faults))
	for _, f := range faults {
		errs = append(errs, fmt.Errorf("%s:%w", path, f))
	}
	return nil, errors.Join(errs...)
}

// Fault is what is wrong with a line of a file.
type Fault struct {
	Line int
	Text string
}

// Error returns the line and what is wrong.
func (f Fault) Error() string { return fmt.Sprintf("%d: %s", f.Line, f.Text) }

// Parse reads the text of a file. The set is nil if there are faults, which are in the order of the lines.
func Parse(raw []byte) (*Set, []Fault) { return parse(raw, nil) }

// parse keeps the routes of before that have not changed.
func parse(raw []byte, before *Set) (*Set, []Fault) {
	p := &parser{set: &Set{byName: make(map[string]*entry), raw: raw}, lines: make(map[string]int), routeLines: make(map[string]int)}
	var f File
	if !p.decode(raw, &f) {
		return nil, p.faults
	}
	p.routes(f.Routes, before)
	made := make(map[string]*Policy)
	for _, name := range slices.Sorted(maps.Keys(f.Policies)) {
		one := f.Policies[name]
		made[name] = p.policy(name, &one)
		p.set.policies = append(p.set.policies, made[name])
	}
	p.callers(f.Callers, made)
	p.set.fallback = p.named(f.Default, "default", 1, made)
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if len(p.faults) == 0 && !p.used[name] {
			p.fault(p.lines[name], "policy %q: no caller has it: add it to callers, or remove it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.set.routes)) {
		if len(p.faults) == 0 && !p.usedRoutes[name] {
			p.fault(p.routeLines[name], "route %q: no policy permits it: add it to egress of a policy, or remove it", name)
		}
	}
	if len(p.faults) > 0 {
		slices.SortFunc(p.faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text)) })
		return nil, p.faults
	}
	return p.set, nil
}

// parser collects the faults of a file.
type parser struct {
	set    *Set
	lines  map[string]int // of the names of policies
	used   map[string]bool
	faults []Fault

	routeLines map[string]int // of the names of routes
	usedRoutes map[string]bool
}

func (p *parser) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, Fault{line, fmt.Sprintf(format, args...)})
}

// atLine is how the decoder says where.
var atLine = regexp.MustCompile(`^line (\d+): (.*)$`)

// notYAML is how the decoder says where the text is not YAML.
var notYAML = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// unknownKey is how the decoder names a key that it does not know, and otherForm a value of another kind.
var (
	unknownKey = regexp.MustCompile(`^field (\S+) not found in type .*$`)
	otherForm  = regexp.MustCompile("^cannot unmarshal !!(\\S+)( `.*`)? into .*$")
)

// keysOf returns the keys of a type in YAML, and those of the types in it.
func keysOf(t reflect.Type) (keys []string) {
	switch t.Kind() {
	case reflect.Map, reflect.Slice:
		return keysOf(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			keys = append(append(keys, field.Tag.Get("yaml")), keysOf(field.Type)...)
		}
	}
	return keys
}

func (p *parser) decode(raw []byte, f *File) bool {
	p.used = make(map[string]bool)
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	err := decoder.Decode(f)
	if errors.Is(err, io.EOF) {
		p.fault(1, "is empty: give policies, callers and default")
		return false
	}
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		for _, text := range wrong.Errors {
			line := 1
			if m := atLine.FindStringSubmatch(text); m != nil {
				line, _ = strconv.Atoi(m[1])
				text = m[2]
			}
			if m := unknownKey.FindStringSubmatch(text); m != nil {
				text = fmt.Sprintf("unknown key %q: see docs/policies.md for the keys", m[1])
				if near := typo.Nearest(m[1], "", keysOf(reflect.TypeFor[File]())); near != "" {
					text = fmt.Sprintf("unknown key %q: did you mean %s?", m[1], near)
				}
			}
			p.fault(line, "%s", otherForm.ReplaceAllString(text, `has a value of another form, $1$2: see docs/policies.md for the forms`))
		}
		return false
	}
	if err != nil {
		line, text := 1, fmt.Sprint(err)
		if m := notYAML.FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1])
			text = m[2]
		}
		p.fault(line, "is not YAML: %s", text)
		return false
	}
	var root yaml.Node
	if yaml.Unmarshal(raw, &root) == nil && len(root.Content) > 0 {
		if p.missing(&root); len(p.faults) > 0 {
			return false
		}
		for i := 0; i+1 < len(root.Content[0].Content); i += 2 {
			key, value := root.Content[0].Content[i], root.Content[0].Content[i+1]
			lines := map[string]map[string]int{"policies": p.lines, "routes": p.routeLines}[key.Value]
			for j := 0; j+1 < len(value.Content) && lines != nil; j += 2 {
				lines[value.Content[j].Value] = value.Content[j].Line
			}
		}
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		p.fault(1, "has a second document: put all into one")
		return false
	}
	return true
}

// missing reports values that are missing. The decoder would take a key without a value for one that is absent, so a
// list of which every entry is commented out would permit everything.
func (p *parser) missing(n *yaml.Node) {
	for i, value := range n.Content {
		switch {
		case value.Tag != "!!null":
			p.missing(value)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			p.fault(n.Content[i-1].Line, "%.60s: has no value: give one, or remove the key", n.Content[i-1].Value)
		default:
			p.fault(value.Line, "has an entry without a value: remove it")
		}
	}
}

// policyName is what a policy may be called. It is in metrics and logs.
var policyName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

func (p *parser) policy(name string, t *policyText) *Policy {
	if !policyName.MatchString(name) {
		p.fault(p.lines[name], "policy %.80q: give a name of at most 64 lower-case letters, digits, dots, dashes and underscores", name)
	}
	out := &Policy{Name: name, ToCaller: t.ToCaller}
	out.Report = p.choice(t.Mode, "mode", "enforce", "report") == "report"
	if t.ToCaller && !out.Report {
		p.fault(p.lines[name], "policy %q: report-to-caller is true, but the mode is enforce: a fetch that is blocked says so anyway", name)
	}
	out.guard, out.Ports = p.egress(name, &t.Egress)
	if t.Permit.line > 0 {
		out.Nothing = p.nothing(t)
		out.guard = egress.New(egress.Policy{Name: name, Nothing: out.Nothing})
	}
	p.routesOf(&t.Egress, out)
	p.request(&t.Request, &out.Request)
	out.Share = p.share(&t.Share)
	return out
}

// nothing reads permit, which has one value.
func (p *parser) nothing(t *policyText) bool {
	p.choice(t.Permit, "permit", "nothing")
	if !reflect.DeepEqual([]any{t.Egress, t.Request, t.Share}, []any{egressText{}, requestText{}, shareText{}}) {
		p.fault(t.Permit.line, "permit: is nothing, so egress, request and share have no effect: leave them out, or leave out permit")
	}
	return true
}

// choice returns the value, or the first of the possible ones if it is absent.
func (p *parser) choice(t text, key string, possible ...string) string {
	if t.line == 0 {
		return possible[0]
	}
	if !slices.Contains(possible, t.value) {
		p.fault(t.line, "%s: is %.60q: give %s", key, t.value, strings.Join(possible, " or "))
	}
	return t.value
}

func (p *parser) number(t text, key string, low, high int64) int64 {
	if t.line == 0 {
		return 0
	}
	n, err := strconv.ParseInt(t.value, 10, 64)
	if err != nil || n < low || n > high {
		p.fault(t.line, "%s: is %.60q: give a number from %d to %d", key, t.value, low, high)
	}
	return n
}

func (p *parser) egress(name string, t *egressText) (*egress.Guard, []uint16) {
	rules := egress.Policy{Name: name}
	rules.LeaveHosts = p.choice(t.Redirects, "redirects", "allowed-names", "anywhere") == "anywhere"
	if t.Redirects.line > 0 && len(t.AllowNames) == 0 {
		p.fault(t.Redirects.line, "redirects: has no effect without allow-names: give allow-names, or leave it out")
	}
	rules.AllowHosts, rules.DenyHosts = p.names(t.AllowNames, "allow-names"), p.names(t.DenyNames, "deny-names")
	for key, list := range map[string][]text{"allow-names": t.AllowNames, "ports": t.Ports, "schemes": t.Schemes, "routes": t.Routes} {
		if list != nil && len(list) == 0 {
			p.fault(p.lines[name], "policy %q: %s is empty, which would mean the same as without it: give values, or leave it out", name, key)
		}
	}
	rules.AllowCIDRs, rules.DenyCIDRs = p.prefixes(t.AllowAddresses, "allow-addresses"), p.prefixes(t.DenyAddresses, "deny-addresses")
	rules.OnlyCIDRs = p.choice(t.Public, "public-addresses", "allow", "forbid") == "forbid"
	if rules.OnlyCIDRs && len(t.AllowAddresses) == 0 {
		p.fault(t.Public.line, "public-addresses: is forbid, which permits nothing without allow-addresses: give allow-addresses")
	}
	for _, port := range t.Ports {
		rules.Ports = append(rules.Ports, uint16(p.number(port, "ports", 1, 1<<16-1)))
	}
	for _, scheme := range t.Schemes {
		rules.Schemes = append(rules.Schemes, p.choice(scheme, "schemes", "http", "https"))
	}
	return egress.New(rules), rules.Ports
}

// names reads names of hosts.
func (p *parser) names(list []text, key string) []string {
	all, seen := make([]string, 0, len(list)), make(map[string]bool, len(list))
	for _, t := range list {
		rules := egress.Policy{DenyHosts: []string{t.value}}
		switch _, err := netip.ParseAddr(t.value); {
		case err == nil, t.value != "" && urls.EndsInNumber(t.value):
			p.fault(t.line, "%s: %.80q is an address, which no name matches: put it into %s", key, t.value, strings.Replace(key, "names", "addresses", 1))
			continue
		case rules.Check() != nil:
			p.fault(t.line, "%s: is %.80q: give a name in lower case and ASCII (xn--), *.NAME for the names below it, or domain:NAME for both", key, t.value)
			continue
		case seen[t.value]:
			p.fault(t.line, "%s: %q is there twice: remove one", key, t.value)
		}
		seen[t.value] = true
		all = append(all, t.value)
	}
	return all
}

func (p *parser) prefixes(list []text, key string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range list {
		prefix, ok := parsePrefix(t.value)
		if !ok {
			p.fault(t.line, "%s: is %.60q: give an address, or a range such as 10.1.0.0/16", key, t.value)
			continue
		}
		all = append(all, prefix)
	}
	return all
}

// parsePrefix reads an address or a range.
func parsePrefix(s string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" && !addr.Is4In6() {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(s)
	return prefix, err == nil && !prefix.Addr().Is4In6() && prefix == prefix.Masked() // 10.1.2.3/8 may be meant as something smaller
}

func (p *parser) request(t *requestText, out *Request) {
	out.Methods = p.words(t.Methods, "methods", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
	out.Providers, out.Stores, out.Records, out.Labels = p.words(t.Providers, "auth-providers"), p.words(t.Stores, "stores"), p.words(t.Records, "record-stores"), p.words(t.Labels, "required-labels")
	if d := t.MaxTotalTimeout; d.line > 0 {
		limit, err := time.ParseDuration(d.value)
		if err != nil || limit <= 0 {
			p.fault(d.line, "max-total-timeout: is %.60q: give a duration such as 30s", d.value)
		}
		out.MaxTotalTimeout = limit
	}
	out.MaxSizeBytes = p.number(t.MaxSizeBytes, "max-size-bytes", 1, 1<<50)
	out.MaxAttempts = int(p.number(t.MaxAttempts, "max-attempts", 1, 11))
	if t.MaxRedirects.line > 0 {
		out.MaxRedirects = new(int(p.number(t.MaxRedirects, "max-redirects", 0, 20)))
	}
	out.ForbidNonIdempotent = p.choice(t.NonIdempotentRetries, "non-idempotent-retries", "allow", "forbid") == "forbid"
}

// maxPerSecond is the largest fetches-per-second. More than that no replica does.
const maxPerSecond = 1_000_000

func (p *parser) share(t *shareText) (out Share) {
	out.FetchesInFlight = int(p.number(t.FetchesInFlight, "fetches-in-flight", 1, maxPerSecond))
	if t.Memory.line > 0 {
		percent, ok := strings.CutSuffix(t.Memory.value, "%")
		n, err := strconv.Atoi(percent)
		if !ok || err != nil || n < 1 || n > 75 {
			p.fault(t.Memory.line, "memory: is %.60q: give a part of the memory budget from 1%% to 75%%", t.Memory.value)
		}
		out.MemoryPercent = n
	}
	if t.FetchesPerSecond.line > 0 {
		rate, err := strconv.ParseFloat(t.FetchesPerSecond.value, 64)
		if err != nil || !(rate >= 0.001 && rate <= maxPerSecond) { // not NaN either
			p.fault(t.FetchesPerSecond.line, "fetches-per-second: is %.60q: give a number from 0.001 to %d", t.FetchesPerSecond.value, maxPerSecond)
			return out
		}
		out.FetchesPerSecond, out.Burst = rate, int(math.Ceil(rate))
	}
	if t.Burst.line > 0 {
		if out.FetchesPerSecond == 0 {
			p.fault(t.Burst.line, "burst: has no effect without fetches-per-second: give that, or leave it out")
		}
		out.Burst = int(p.number(t.Burst, "burst", 1, maxPerSecond))
	}
	return out
}

// words reads a list. It is nil if the list is absent. No possible values means any.
func (p *parser) words(list []text, key string, possible ...string) []string {
	if list == nil {
		return nil
	}
	all := make([]string, 0, len(list))
	for _, t := range list {
		if len(possible) > 0 {
			t.value = p.choice(t, key, possible...)
		} else if t.value == "" {
			p.fault(t.line, "%s: has an empty name: remove it", key)
		}
		all = append(all, t.value)
	}
	return all
}

func (p *parser) callers(list []callerText, made map[string]*Policy) {
	for i, t := range list {
		e := &entry{number: i, text: t.Caller.value + t.Address.value, address: t.Address.line > 0, policy: p.named(t.Policy, "policy", max(t.Caller.line, t.Address.line, 1), made)}
		p.set.entries = append(p.set.entries, e)
		switch {
		case (t.Caller.line > 0) == (t.Address.line > 0):
			p.fault(max(t.Caller.line, t.Policy.line, 1), "entry %d of callers: give either caller or address", i+1)
		case t.Address.line > 0:
			p.address(t.Address, e)
		default:
			p.caller(t.Caller, e)
		}
	}
}

func (p *parser) address(t text, e *entry) {
	prefix, ok := parsePrefix(t.value)
	if !ok {
		p.fault(t.line, "address: is %.60q: give an address, or a range such as 10.1.0.0/16", t.value)
		return
	}
	if before := p.set.ranges.match(prefix); before != nil {
		p.fault(t.line, "address: %s can never match, because %s comes before it: move it up, or remove it", prefix, before.text)
	}
	p.set.ranges.add(prefix, e)
}

func (p *parser) caller(t text, e *entry) {
	before, after, pattern := strings.Cut(t.value, "*")
	if t.value == "" || strings.Contains(after, "*") {
		p.fault(t.line, "caller: is %.80q: give a name as the log shows it, or a pattern with one *", t.value)
		return
	}
	if strings.HasPrefix(t.value, "address:") {
		p.fault(t.line, "caller: is %.80q: give an address with the key address, such as {address: 10.9.0.1, policy: a}", t.value)
		return
	}
	head, tail, longest := t.value, t.value, len(t.value)
	if pattern {
		head, tail, longest = before, after, math.MaxInt
	}
	if earlier := p.set.patterns.match(head, tail, longest); earlier != nil {
		p.fault(t.line, "caller: %q can never match, because %q comes before it: move it up, or remove it", t.value, earlier.text)
	}
	if pattern {
		p.set.patterns.add(before, after, e)
		return
	}
	if p.set.byName[t.value] != nil {
		p.fault(t.line, "caller: %q can never match, because it is there before: remove it", t.value)
	}
	p.set.byName[t.value] = e
}

// named returns the policy with a name. line is where its name is missing.
func (p *parser) named(t text, key string, line int, made map[string]*Policy) *Policy {
	switch found := made[t.value]; {
	case t.line == 0:
		p.fault(line, "%s: is missing: give the name of a policy", key)
	case found == nil:
		p.fault(t.line, "%s: is %.80q, which is not among policies", key, t.value)
	default:
		p.used[t.value] = true
		return found
	}
	return nil
}
