package origin

import (
	"fmt"
	"net/url"
	"strings"
)

// step is one parsed STEP of a script.
type step struct {
	text   string // as in the URL
	kind   *stepKind
	status string // three digits, for statusKind
	answer answer

	// For the steps that break something.
	at    string
	after int64
	code  uint32
	last  string
	fault string
	size  int64
}

// stepKind is one NAME of the grammar.
type stepKind struct {
	name   string
	doc    string
	params []param
	// run carries the step out. Nil error: all was answered.
	run func(x *exchange, s *step) error
}

// statusKind stands for every three-digit NAME.
const statusKind = "STATUS"

func parseSteps(parts []string) ([]step, error) {
	steps := make([]step, 0, len(parts))
	for _, part := range parts {
		s, err := parseStep(part)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// parseStep reads NAME or NAME:param=value,param=value.
func parseStep(text string) (step, error) {
	name, rest, hasParams := strings.Cut(text, ":")
	name, err := unescape(name)
	if err != nil {
		return step{}, err
	}
	s := step{text: text, kind: findKind(name)}
	if s.kind == nil {
		return step{}, fmt.Errorf("%w: no step %q", errGrammar, name)
	}
	if s.kind.name == statusKind {
		s.status = name
	}
	s.setDefaults()
	if !hasParams {
		return s, nil
	}
	return s, s.parseParams(rest)
}

func (s *step) setDefaults() {
	s.answer = answer{size: unset, stall: unset, cut: unset, length: unset, codingCut: unset, earlyCount: 1}
	s.at = atBeforeHead
	s.size = unset
}

func (s *step) parseParams(list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(pair, "=")
		// Decoded once, and only after the list was split.
		value, err := url.PathUnescape(value)
		if err != nil {
			return fmt.Errorf("%w: bad encoding in %q", errGrammar, pair)
		}
		p := s.kind.find(name)
		if p == nil {
			return fmt.Errorf("%w: step %s has no parameter %q", errGrammar, s.kind.name, name)
		}
		if err := p.set(s, value); err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	return nil
}

// find returns the parameter of that name; trailing digits are for writing one
// more than once and may be left out.
func (k *stepKind) find(name string) *param {
	bare := strings.TrimRight(name, "0123456789")
	for i := range k.params {
		if p := k.params[i].name; p == name || p == bare {
			return &k.params[i]
		}
	}
	return nil
}

func findKind(name string) *stepKind {
	wanted := name
	if isStatus(name) {
		wanted = statusKind
	}
	for i := range stepKinds {
		if stepKinds[i].name == wanted {
			return &stepKinds[i]
		}
	}
	return nil
}

func isStatus(name string) bool {
	return len(name) == 3 && strings.Trim(name, "0123456789") == ""
}

// location makes the step a redirect to the given raw Location.
func (s *step) location(to string) {
	s.answer.fields = append(s.answer.fields, fieldSpec{name: "Location", value: to})
}
