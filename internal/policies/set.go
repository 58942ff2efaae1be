package policies

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
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
	Request  Request
	Share    Share

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
	policies  []*Policy // in the order of their names
	byName    map[string]*entry
	patterns  []*entry
	addresses []*entry
	fallback  *Policy
	routes    map[string]*fetch.Route
	raw       []byte
}

// entry gives some callers a policy.
type entry struct {
	number         int    // the first entry that matches decides
	text           string // as it is in the file
	prefix, suffix string
	address        netip.Prefix
	policy         *Policy
}

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
	switch {
	case s == nil:
		return nil
	case name == "":
		address = address.WithZone("").Unmap()
		for _, e := range s.addresses {
			if e.address.Contains(address) {
				return e.policy
			}
		}
		return s.fallback
	}
	found := s.byName[name]
	for _, e := range s.patterns {
		if found != nil && found.number < e.number {
			break
		}
		if len(name) >= len(e.prefix)+len(e.suffix) && strings.HasPrefix(name, e.prefix) && strings.HasSuffix(name, e.suffix) {
			return e.policy
		}
	}
	if found == nil {
		return s.fallback
	}
	return found.policy
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
	var found []*entry
	for _, e := range slices.Concat(slices.Collect(maps.Values(s.byName)), s.patterns, s.addresses) {
		if e.policy == p {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return a.number - b.number })
	var all []string
	for _, e := range found {
		all = append(all, e.text)
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
