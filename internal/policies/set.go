package policies

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fetchd/fetch"
	"fetchd/fetch/egress"
)

// Policy is what some callers may do. The zero value of Request forbids nothing.
type Policy struct {
	// Name identifies the policy in errors, logs and metrics.
	Name string
	// Report says that nothing is blocked: what would be is counted, logged and reported only.
	Report bool
	// ToCaller lists in each outcome what the policy would have blocked. It needs Report.
	ToCaller bool
	// Nothing says that every request is forbidden.
	Nothing bool
	// Ports are permitted instead of 80 and 443, if there are any.
	Ports   []uint16
	Request Request
	Share   Share

	guard  *egress.Guard
	route  *fetch.Route // of requests that name none; nil: that of the settings
	routes map[string]*fetch.Route
}

// Request limits what a request may ask for. A nil list permits everything; an empty one nothing.
type Request struct {
	Methods []string
	// Providers, Stores and Records are the names that auth_provider, body_policy.store and
	// record_policy may have.
	Providers, Stores, Records []string
	// Labels are the labels that a request must have.
	Labels []string
	// MaxTotalTimeout, MaxSizeBytes and MaxAttempts limit the fields of these names. A request that
	// sets a higher value is denied, and a default is lowered. Zero means no limit.
	MaxTotalTimeout time.Duration
	MaxSizeBytes    int64
	MaxAttempts     int
	// MaxRedirects is the same for max_redirects. Nil means no limit.
	MaxRedirects *int
	// ForbidNonIdempotent denies allow_non_idempotent.
	ForbidNonIdempotent bool
}

// Share limits what each caller may use at once. Zero means no limit.
type Share struct {
	FetchesInFlight int
	MemoryPercent   int // of the memory budget
	// FetchesPerSecond is how many fetches may start in a second, and Burst how many at once after a pause.
	FetchesPerSecond float64
	Burst            int
}

// Set is a file of policies. The zero value and a nil *Set have none. It is safe for concurrent use.
type Set struct {
	policies []*Policy // in the order of their names
	entries  []*entry
	byName   map[string]*entry
	patterns patterns
	ranges   ranges
	fallback *Policy
	routes   map[string]*fetch.Route
	raw      []byte
}

// entry gives some callers a policy.
type entry struct {
	number int    // the first entry that matches decides
	text   string // as it is in the file
	policy *Policy

	address bool // for callers without a name
}

// first returns the entry that comes first in the file. Each may be nil.
func first(a, b *entry) *entry {
	if a == nil || b != nil && b.number < a.number {
		return b
	}
	return a
}

// patterns are the entries for names with a star, by the texts before and after it. A lookup costs a step for each
// pair of lengths that these texts have, however many patterns there are.
type patterns struct {
	lengths [][2]int
	byTexts map[[2]string]*entry
}

func (p *patterns) add(before, after string, e *entry) {
	if p.byTexts == nil {
		p.byTexts = make(map[[2]string]*entry)
	}
	if lengths := [2]int{len(before), len(after)}; !slices.Contains(p.lengths, lengths) {
		p.lengths = append(p.lengths, lengths)
	}
	key := [2]string{before, after}
	p.byTexts[key] = first(p.byTexts[key], e)
}

// match returns the first pattern whose text before the star is the start of head, and whose text after it is the end
// of tail. Together these texts have at most longest bytes.
func (p *patterns) match(head, tail string, longest int) (found *entry) {
	for _, n := range p.lengths {
		if n[0] <= len(head) && n[1] <= len(tail) && n[0]+n[1] <= longest {
			found = first(found, p.byTexts[[2]string{head[:n[0]], tail[len(tail)-n[1]:]}])
		}
	}
	return found
}

// ranges are the entries for addresses. A lookup costs a step for each length of a prefix.
type ranges struct {
	bits     []int
	byPrefix map[netip.Prefix]*entry
}

func (r *ranges) add(prefix netip.Prefix, e *entry) {
	if r.byPrefix == nil {
		r.byPrefix = make(map[netip.Prefix]*entry)
	}
	if !slices.Contains(r.bits, prefix.Bits()) {
		r.bits = append(r.bits, prefix.Bits())
	}
	r.byPrefix[prefix] = first(r.byPrefix[prefix], e)
}

// match returns the first range that has all addresses of another one.
func (r *ranges) match(all netip.Prefix) (found *entry) {
	for _, bits := range r.bits {
		if bits > all.Bits() {
			continue
		}
		if prefix, err := all.Addr().Prefix(bits); err == nil {
			found = first(found, r.byPrefix[prefix])
		}
	}
	return found
}

// Default returns the policy of callers without an entry.
func (s *Set) Default() *Policy { return s.fallback }

// Policies returns all policies in the order of their names.
func (s *Set) Policies() []*Policy {
	if s == nil {
		return nil
	}
	return s.policies
}

// Of returns the policy of a caller: by its name, or by its address if it has no name. It is nil if there
// are no policies.
func (s *Set) Of(name string, address netip.Addr) *Policy {
	if s == nil {
		return nil
	}
	if e := s.find(name, address); e != nil {
		return e.policy
	}
	return s.fallback
}

// Match compares the entries of callers with the names that callers have. It returns the names without an entry, whose
// callers have the default, and the entries for names that match none.
func (s *Set) Match(names []string) (others, unused []string) {
	used := make(map[*entry]bool)
	for _, name := range names {
		if e := s.find(name, netip.Addr{}); e != nil {
			used[e] = true
		} else {
			others = append(others, name)
		}
	}
	for _, e := range s.entries {
		if !used[e] && !e.address {
			unused = append(unused, e.text)
		}
	}
	return others, unused
}

// find returns the entry that decides about a caller, or nil.
func (s *Set) find(name string, address netip.Addr) *entry {
	if name == "" {
		address = address.WithZone("").Unmap()
		return s.ranges.match(netip.PrefixFrom(address, address.BitLen()))
	}
	return first(s.byName[name], s.patterns.match(name, name, len(name)))
}

// Only returns a set in which every caller has the policy with that name, or nil if there is none.
func (s *Set) Only(name string) *Set {
	for _, p := range s.Policies() {
		if p.Name == name {
			return &Set{policies: []*Policy{p}, fallback: p, raw: s.raw, routes: s.routes}
		}
	}
	return nil
}

// Mode returns "enforce" or "report".
func (p *Policy) Mode() string {
	if p.Report {
		return "report"
	}
	return "enforce"
}

// Enforced returns the policy in mode enforce.
func (p *Policy) Enforced() *Policy {
	enforced := *p
	enforced.Report = false
	return &enforced
}

// Callers returns the callers that have a policy, in the order of the file.
func (s *Set) Callers(p *Policy) []string {
	var all []string
	for _, e := range s.entries {
		if e.policy == p {
			all = append(all, e.text)
		}
	}
	if s.fallback == p {
		all = append(all, "all others")
	}
	return all
}

// Same reports whether two sets were read from the same bytes, and lead the same ways.
func (s *Set) Same(other *Set) bool {
	if s == nil || other == nil {
		return s == other
	}
	return slices.Equal(s.raw, other.raw) && maps.Equal(s.routes, other.routes)
}
