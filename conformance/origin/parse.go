package origin

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// errGrammar marks URLs that are not in the grammar.
var errGrammar = errors.New("not in the grammar")

const (
	unset     = -1       // the value of a number that was not given
	maxNumber = 1 << 40  // limit of the numbers in the grammar
	maxMemory = 64 << 20 // limit of what one answer holds in memory, in bytes
	maxChain  = 1000     // limit of N in /r/KEY/STATUS/N
)

// route is what the path of a request asks for.
type route struct {
	key    string
	steps  []step
	helper bool   // a redirect helper, which does not advance the script of its key
	cycle  string // the script of /cycle; after its last step the first follows
}

// stepAt returns the step for turn n, counted from 1. After the last step, /s
// repeats it and /cycle starts again.
func (rt *route) stepAt(n int) *step {
	if rt.cycle != "" {
		return &rt.steps[(max(n, 1)-1)%len(rt.steps)]
	}
	return &rt.steps[min(max(n, 1), len(rt.steps))-1]
}

// parseRoute parses an encoded path. Its errors match errGrammar.
func (o *Origin) parseRoute(path string) (*route, error) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) < 3 {
		return nil, fmt.Errorf("%w: %q has no KEY and STEP", errGrammar, path)
	}
	key, err := unescape(parts[1])
	if err != nil || key == "" {
		return nil, fmt.Errorf("%w: bad KEY %q", errGrammar, parts[1])
	}
	rt := &route{key: key, helper: parts[0] != "s" && parts[0] != "cycle"}
	switch parts[0] {
	case "s":
		rt.steps, err = parseSteps(parts[2:])
	case "cycle":
		rt.cycle = strings.Join(parts[2:], "/")
		rt.steps, err = parseSteps(parts[2:])
	case "r":
		rt.steps, err = chainStep(parts)
	case "loop":
		rt.steps, err = redirectStep(parts[2], path)
	case "loop2": // alternates between loop2/KEY/STATUS and loop2/KEY/STATUS/b
		to := "/" + strings.Join(parts[:3], "/")
		if len(parts) == 3 {
			to += "/b"
		}
		rt.steps, err = redirectStep(parts[2], to)
	case "cross":
		rt.steps, err = o.crossStep(parts)
	default:
		err = fmt.Errorf("%w: no helper %q", errGrammar, parts[0])
	}
	return rt, err
}

func unescape(s string) (string, error) {
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return "", fmt.Errorf("%w: bad encoding %q", errGrammar, s)
	}
	return decoded, nil
}

// chainStep parses r/KEY/STATUS/N/STEP…: N redirects that lead to s/KEY/STEP….
func chainStep(parts []string) ([]step, error) {
	if len(parts) < 5 {
		return nil, fmt.Errorf("%w: want /r/KEY/STATUS/N/STEP", errGrammar)
	}
	n, err := strconv.Atoi(parts[3])
	if err != nil || n < 1 || n > maxChain {
		return nil, fmt.Errorf("%w: N of a chain must be 1 to %d, not %q", errGrammar, maxChain, parts[3])
	}
	rest := strings.Join(parts[4:], "/")
	if n == 1 {
		return redirectStep(parts[2], "/s/"+parts[1]+"/"+rest)
	}
	return redirectStep(parts[2], fmt.Sprintf("/r/%s/%s/%d/%s", parts[1], parts[2], n-1, rest))
}

// crossStep parses cross/KEY/STATUS/TARGET/STEP….
func (o *Origin) crossStep(parts []string) ([]step, error) {
	if len(parts) < 5 {
		return nil, fmt.Errorf("%w: want /cross/KEY/STATUS/TARGET/STEP", errGrammar)
	}
	target, err := unescape(parts[3])
	if err != nil {
		return nil, err
	}
	name, host, otherHost := strings.Cut(target, "@")
	if _, ok := kindOf(name); !ok && name != refusedName {
		return nil, fmt.Errorf("%w: no listener %q", errGrammar, name)
	}
	u, err := url.Parse(o.URL(name, ""))
	if err != nil {
		return nil, errors.Join(errGrammar, err)
	}
	if otherHost {
		if port := u.Port(); port != "" {
			host += ":" + port
		}
		u.Host = host
	}
	to := u.Scheme + "://" + u.Host + "/s/" + parts[1] + "/" + strings.Join(parts[4:], "/")
	return redirectStep(parts[2], to)
}

// redirectStep returns the step STATUS with a raw Location. STATUS may have
// parameters, as in a script.
func redirectStep(status, to string) ([]step, error) {
	s, err := parseStep(status)
	if err != nil {
		return nil, err
	}
	if s.kind.name != statusKind {
		return nil, fmt.Errorf("%w: %q is not a status", errGrammar, status)
	}
	s.answer.fields = append(s.answer.fields, fieldSpec{name: "Location", value: to})
	return []step{s}, nil
}

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

// newStep returns a step with the defaults of the grammar.
func newStep() step {
	return step{
		at:     atBeforeHead,
		size:   unset,
		answer: answer{size: unset, stall: unset, cut: unset, length: unset, codingCut: unset, earlyCount: 1},
	}
}

// stepKind is one NAME of the grammar.
type stepKind struct {
	name string
	// run executes the step. It returns nil if the whole answer was sent.
	run func(x *exchange, s *step) error
	// params returns the parameters of the step, which set the values of s.
	params func(s *step) []param
	doc    string
}

// statusKind is the name of the kind for every three-digit NAME.
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

// parseStep parses NAME or NAME:PARAM=VALUE,PARAM=VALUE.
func parseStep(text string) (step, error) {
	name, rest, hasParams := strings.Cut(text, ":")
	name, err := unescape(name)
	if err != nil {
		return step{}, err
	}
	s := newStep()
	s.text, s.kind = text, findKind(name)
	if s.kind == nil {
		return step{}, fmt.Errorf("%w: no step %q", errGrammar, name)
	}
	if s.kind.name == statusKind {
		s.status = name
	}
	if !hasParams {
		return s, nil
	}
	err = s.parseParams(rest)
	return s, err
}

func (s *step) parseParams(list string) error {
	params := s.kind.params(s)
	for pair := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(pair, "=")
		// Decode only after the list was split, so that %2C is not a separator.
		value, err := url.PathUnescape(value)
		if err != nil {
			return fmt.Errorf("%w: bad encoding in %q", errGrammar, pair)
		}
		// Digits at the end let a parameter be given more than once: header1=, header2=.
		bare := strings.TrimRight(name, "0123456789")
		i := slices.IndexFunc(params, func(p param) bool { return p.name == name || p.name == bare })
		if i < 0 {
			return fmt.Errorf("%w: step %s has no parameter %q", errGrammar, s.kind.name, name)
		}
		if err := params[i].set(value); err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	return nil
}
