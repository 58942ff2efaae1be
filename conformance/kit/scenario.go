package kit

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/conformance"
	"fetchd/conformance/mapping"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
)

// Origin serves the scenarios and keeps a log. [origin.Origin] implements it.
type Origin interface {
	// URL returns the absolute URL of a path on the named listener.
	URL(listener, path string) string
	// Requests returns the requests for a key, in order of arrival.
	Requests(key string) []origin.Request
	// Body returns the first n bytes of the body that the paths ask for.
	Body(n int64) []byte
}

// Scenario is a [conformance.Scenario] with the messages of the API.
type Scenario struct {
	conformance.Scenario

	// Changed describes what a breakage has changed, or is empty.
	Changed string

	request  *pb.FetchRequest
	deadline time.Duration // zero means none
	outcome  *pb.FetchOutcome
	waits    []*pb.RetryDecision
	gaps     []time.Duration // minimum times between the requests of a client
	run      int             // of several runs; zero for the first
}

// Load reads all scenarios. An error names the file and the scenario.
func Load() ([]*Scenario, error) {
	data, err := conformance.Scenarios()
	if err != nil {
		return nil, err
	}
	all := make([]*Scenario, len(data))
	for i := range data {
		s := &Scenario{Scenario: data[i]}
		if err := s.parse(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.File, s.Name, err)
		}
		all[i] = s
	}
	return all, nil
}

func (s *Scenario) parse() error {
	s.request, s.outcome = mapping.FetchRequest(&s.Fetch), mapping.Outcome(&s.Want.Outcome)
	for i := range s.Want.Waits {
		w := &s.Want.Waits[i]
		s.waits = append(s.waits, mapping.Wait(w))
		s.gaps = append(s.gaps, time.Duration(w.Delay))
	}
	if s.Deadline != "" {
		d, err := time.ParseDuration(s.Deadline)
		if err != nil {
			return fmt.Errorf("deadline: %w", err)
		}
		s.deadline = d
	}
	return s.parseClient()
}

func (s *Scenario) parseClient() error {
	if s.Client == nil || len(s.Client.Gaps) == 0 {
		return nil
	}
	s.gaps = nil
	for _, text := range s.Client.Gaps {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("gap: %w", err)
		}
		s.gaps = append(s.gaps, d)
	}
	return nil
}

// Key returns the key under which the origin counts the requests of the scenario.
func (s *Scenario) Key() string {
	if s.run > 0 {
		return key(s.Name) + "-run-" + strconv.Itoa(s.run)
	}
	return key(s.Name)
}

func key(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' || r == '/' {
			return '-'
		}
		return r
	}, name)
}

// URL returns the absolute URL to fetch.
func (s *Scenario) URL(o Origin) string { return s.resolve(o, s.Listener, s.Path) }

// finalURL returns the expected URL of the last response.
func (s *Scenario) finalURL(o Origin) string {
	listener, path := s.Want.FinalListener, s.Want.FinalPath
	if listener == "" {
		listener = s.Listener
	}
	if path == "" {
		path = s.Path
	}
	return s.resolve(o, listener, path)
}

// listeners matches the names in a path of listeners to which a redirect leads.
var listeners = regexp.MustCompile(`\{[a-z0-9-]+\}`)

func (s *Scenario) resolve(o Origin, listener, path string) string {
	path = strings.ReplaceAll(path, "KEY", s.Key())
	path = listeners.ReplaceAllStringFunc(path, func(name string) string {
		return url.PathEscape(o.URL(strings.Trim(name, "{}"), ""))
	})
	return o.URL(listener, path)
}

// AuthProvider returns the auth provider that the request names, or "".
func (s *Scenario) AuthProvider() string { return s.request.GetAuthProvider() }

// Store returns the store that the request names, or "".
func (s *Scenario) Store() string { return s.request.GetBodyPolicy().GetStore().GetStore() }

// Listeners returns the listeners that the scenario needs. The first is the one of its URL.
func (s *Scenario) Listeners() []string {
	names := []string{s.Listener}
	for _, name := range listeners.FindAllString(s.Path, -1) {
		names = append(names, strings.Trim(name, "{}"))
	}
	return names
}

// About reports whether the scenario is about a rule or has that name.
func (s *Scenario) About(ruleOrName string) bool {
	return s.Name == ruleOrName || slices.Contains(s.Rules, strings.ToUpper(ruleOrName))
}

// BreakRules returns the rules for which the scenario has a breakage.
func (s *Scenario) BreakRules() []string {
	rules := make([]string, len(s.Breaks))
	for i, b := range s.Breaks {
		rules[i] = b.Rule
	}
	return rules
}

// Broken returns the scenarios that have a breakage of the rule, changed so that the rule does not
// apply. The expectations stay the same, so judging them must fail.
func Broken(all []*Scenario, rule string) []*Scenario {
	var chosen []*Scenario
	for _, s := range all {
		at := slices.IndexFunc(s.Breaks, func(b conformance.Breakage) bool { return b.Rule == rule })
		if at < 0 {
			continue
		}
		changed, b := *s, s.Breaks[at]
		changed.Path, changed.Changed = b.Path, b.What
		if b.Listener != "" {
			changed.Listener = b.Listener
		}
		chosen = append(chosen, &changed)
	}
	return chosen
}
