package origin

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
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

// unset is the value of a number that was not given.
const unset = -1

// maxNumber bounds numbers of the grammar: 1 TiB.
const maxNumber = 1 << 40

// maxMemory bounds what is held in memory for one answer: 64 MiB.
const maxMemory = 64 << 20

// param is one parameter of a step.
type param struct {
	name   string
	syntax string
	doc    string
	set    func(s *step, value string) error
}

// number sets a size or a count of 0 to most.
func number(most int64, target func(*step) *int64) func(*step, string) error {
	return func(s *step, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > most {
			return fmt.Errorf("%w: want a number from 0 to %d", errGrammar, most)
		}
		*target(s) = n
		return nil
	}
}

// text sets any string.
func text(target func(*step) *string) func(*step, string) error {
	return func(s *step, value string) error {
		*target(s) = value
		return nil
	}
}

// given sets a string for which empty and absent differ.
func given(target func(*step) **string) func(*step, string) error {
	return func(s *step, value string) error {
		*target(s) = &value
		return nil
	}
}

// flag sets a switch that takes no value.
func flag(target func(*step) *bool) func(*step, string) error {
	return func(s *step, value string) error {
		if value != "" {
			return fmt.Errorf("%w: takes no value", errGrammar)
		}
		*target(s) = true
		return nil
	}
}

// choice sets one of the given words.
func choice(target func(*step) *string, words ...string) func(*step, string) error {
	return func(s *step, value string) error {
		for _, word := range words {
			if value == word {
				*target(s) = value
				return nil
			}
		}
		return fmt.Errorf("%w: want one of %s", errGrammar, strings.Join(words, ", "))
	}
}

// duration sets a Go duration such as 1.5s or 20ms.
func duration(target func(*step) *time.Duration) func(*step, string) error {
	return func(s *step, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%w: want a duration such as 20ms", errGrammar)
		}
		*target(s) = d
		return nil
	}
}

// field adds a field of a fixed name with a raw value.
func field(name string) func(*step, string) error {
	return func(s *step, value string) error {
		s.answer.fields = append(s.answer.fields, fieldSpec{name: name, value: value})
		return nil
	}
}

// dateField adds a field whose value is a date so many seconds from now.
func dateField(name string) func(*step, string) error {
	return func(s *step, value string) error {
		after, err := seconds(value)
		if err != nil {
			return err
		}
		s.answer.fields = append(s.answer.fields, fieldSpec{name: name, dated: true, after: after})
		return nil
	}
}

func seconds(value string) (time.Duration, error) {
	const century = 100 * 366 * 24 * 3600
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < -century || n > century {
		return 0, fmt.Errorf("%w: want seconds, within a century", errGrammar)
	}
	return time.Duration(n) * time.Second, nil
}

// anyField adds a field given as Name=Value.
func anyField(s *step, value string) error {
	name, value, ok := strings.Cut(value, "=")
	if !ok || name == "" {
		return fmt.Errorf("%w: want Name=Value", errGrammar)
	}
	return field(name)(s, value)
}

// drip sets BYTES@DURATION; BYTES/DURATION works too, its slash encoded.
func drip(s *step, value string) error {
	count, every, ok := strings.Cut(value, "@")
	if !ok {
		count, every, _ = strings.Cut(value, "/")
	}
	if err := number(1<<20, func(s *step) *int64 { return &s.answer.dripBytes })(s, count); err != nil {
		return fmt.Errorf("BYTES@DURATION or BYTES%%2FDURATION: %w", err)
	}
	if s.answer.dripBytes == 0 {
		return fmt.Errorf("%w: a drip has at least one byte", errGrammar)
	}
	return duration(func(s *step) *time.Duration { return &s.answer.dripEvery })(s, every)
}

// code sets an HTTP/2 error code, decimal or 0x.
func code(s *step, value string) error {
	n, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return fmt.Errorf("%w: want an error code", errGrammar)
	}
	s.code = uint32(n)
	return nil
}

// lastStream sets N or "this".
func lastStream(s *step, value string) error {
	if _, err := strconv.ParseUint(value, 10, 31); err != nil && value != lastThis {
		return fmt.Errorf("%w: want a stream number or %q", errGrammar, lastThis)
	}
	s.last = value
	return nil
}
