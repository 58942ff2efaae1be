package origin

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// errGrammar marks URLs that are not in the grammar.
var errGrammar = errors.New("not in the grammar")

// maxChain bounds N of /r/KEY/STATUS/N.
const maxChain = 1000

// route is what the path of a request asks for.
type route struct {
	key    string
	steps  []step
	helper bool   // a redirect helper: takes no turn of the key
	cycle  string // the script of /cycle: after its last step the first follows
}

// stepAt returns the step of turn n, from 1. The last step repeats, or leads
// back to the first.
func (rt *route) stepAt(n int) *step {
	if rt.cycle != "" {
		return &rt.steps[(max(n, 1)-1)%len(rt.steps)]
	}
	return &rt.steps[min(max(n, 1), len(rt.steps))-1]
}

// router turns paths into routes. absolute gives the URL of a path on another
// listener, for /cross.
type router struct {
	absolute func(target, path string) (string, error)
}

// parse reads an encoded path. Errors match errGrammar.
func (r router) parse(path string) (*route, error) {
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
	case "loop2":
		rt.steps, err = redirectStep(parts[2], otherOfTwo(parts))
	case "cross":
		rt.steps, err = r.crossStep(parts)
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

// chainStep serves r/KEY/STATUS/N/STEP…: N redirects, then s/KEY/STEP….
func chainStep(parts []string) ([]step, error) {
	if len(parts) < 5 {
		return nil, fmt.Errorf("%w: want /r/KEY/STATUS/N/STEP", errGrammar)
	}
	n, err := strconv.Atoi(parts[3])
	if err != nil || n < 1 || n > maxChain {
		return nil, fmt.Errorf("%w: N of a chain is 1 to %d, not %q", errGrammar, maxChain, parts[3])
	}
	rest := strings.Join(parts[4:], "/")
	if n == 1 {
		return redirectStep(parts[2], "/s/"+parts[1]+"/"+rest)
	}
	return redirectStep(parts[2], fmt.Sprintf("/r/%s/%s/%d/%s", parts[1], parts[2], n-1, rest))
}

// otherOfTwo returns the other URL of the loop over loop2/KEY/STATUS and
// loop2/KEY/STATUS/b.
func otherOfTwo(parts []string) string {
	first := "/" + strings.Join(parts[:3], "/")
	if len(parts) > 3 {
		return first
	}
	return first + "/b"
}

// crossStep serves cross/KEY/STATUS/TARGET/STEP….
func (r router) crossStep(parts []string) ([]step, error) {
	if len(parts) < 5 {
		return nil, fmt.Errorf("%w: want /cross/KEY/STATUS/TARGET/STEP", errGrammar)
	}
	target, err := unescape(parts[3])
	if err != nil {
		return nil, err
	}
	to, err := r.absolute(target, "/s/"+parts[1]+"/"+strings.Join(parts[4:], "/"))
	if err != nil {
		return nil, err
	}
	return redirectStep(parts[2], to)
}

// redirectStep is the step STATUS with a Location. STATUS may carry
// parameters, as in a script.
func redirectStep(status, to string) ([]step, error) {
	s, err := parseStep(status)
	if err != nil {
		return nil, err
	}
	if s.kind.name != statusKind {
		return nil, fmt.Errorf("%w: %q is not a status", errGrammar, status)
	}
	s.location(to)
	return []step{s}, nil
}
