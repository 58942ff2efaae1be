// Package observations makes observations that no person chose. They show where implementations of the rules
// disagree that all vectors find right.
package observations

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"fetchd/conformance"
)

// Vectors returns observations without verdicts. The same seed and the same vectors give the same observations.
func Vectors(seed uint64, count int) ([]conformance.Vector, error) {
	from, err := conformance.Vectors()
	if err != nil {
		return nil, err
	}
	d := draw{Rand: rand.New(rand.NewPCG(seed, 0)), headers: make(map[string][]string)}
	d.learn(from)
	out := make([]conformance.Vector, count)
	for i := range out {
		out[i] = conformance.Vector{Name: fmt.Sprintf("generated-%d-%d", seed, i+1), Why: "It was generated.", Source: "the reference", Observation: d.observation()}
	}
	return out, nil
}

// draw draws observations. Its lists have what the vectors contain.
type draw struct {
	*rand.Rand
	statuses               []int
	classes, methods, urls []string
	credentials            []string
	headers                map[string][]string // the values of a field, by its name
}

// learn collects what the vectors contain. The lists keep repetitions, so what is frequent there is frequent here.
func (d *draw) learn(from []conformance.Vector) {
	for i := range from {
		o := &from[i].Observation
		d.classes = append(d.classes, o.Failures...)
		d.methods = append(d.methods, given(o.Method, o.HopMethod)...)
		d.urls = append(d.urls, given(o.URL, o.HopURL)...)
		d.credentials = append(d.credentials, given(o.Credential)...)
		if f := from[i].Verdict.Failure; f != nil {
			d.classes = append(d.classes, f.Class)
		}
		if o.Response == nil {
			continue
		}
		d.statuses = append(d.statuses, o.Response.Status)
		for _, h := range o.Response.Headers {
			name := strings.ToLower(h[0])
			d.headers[name] = append(d.headers[name], h[1])
		}
	}
}

func given(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

func one[T any](d *draw, from []T) T { return from[d.IntN(len(from))] }

// in reports true once in n times.
func (d *draw) in(n int) bool { return d.IntN(n) == 0 }

// maybe returns a value, or nil as often.
func maybe[T any](d *draw, value func() T) *T {
	if d.in(2) {
		return nil
	}
	return new(value())
}

func (d *draw) observation() conformance.Observation {
	o := conformance.Observation{
		RetryPolicy: d.retryPolicy(), RedirectPolicy: d.redirectPolicy(),
		Attempt: d.IntN(6), Redirects: d.IntN(7), Conditional: d.in(3), BodyCommitted: d.in(6), Reused: d.in(2), ObservedAt: new(d.time()),
		Response: d.response(),
	}
	for _, field := range []struct {
		into *string
		from []string
	}{{&o.Method, d.methods}, {&o.HopMethod, d.methods}, {&o.URL, d.urls}, {&o.HopURL, d.urls}, {&o.Credential, d.credentials},
		{&o.RequestState, []string{"not_sent", "not_processed", "unknown"}}} {
		if d.in(2) {
			*field.into = one(d, field.from)
		}
	}
	if d.in(2) {
		o.TimeLeft = new(d.duration(2 * time.Minute))
	}
	for range max(d.IntN(5)-2, 0) {
		o.Failures = append(o.Failures, one(d, d.classes))
	}
	if o.Response == nil && len(o.Failures) == 0 {
		o.Failures = []string{one(d, d.classes)}
	}
	return o
}

// retryPolicy returns a policy that a request may contain (section 12).
func (d *draw) retryPolicy() *conformance.RetryPolicy {
	if d.in(4) {
		return nil
	}
	p := &conformance.RetryPolicy{
		Profile:       one(d, []string{"", "standard", "download"}),
		MaxAttempts:   maybe(d, func() int { return 1 + d.IntN(11) }),
		Multiplier:    maybe(d, func() float64 { return 1 + float64(d.IntN(9001))/1000 }),
		MaxJitter:     maybe(d, func() conformance.Duration { return d.duration(time.Minute) }),
		JitterSeed:    maybe(d, func() conformance.Seed { return conformance.Seed(d.Uint64() >> d.IntN(64)) }),
		MaxRetryAfter: maybe(d, func() conformance.Duration { return d.duration(15 * time.Minute) }),
	}
	if d.in(2) {
		base, most := d.duration(5*time.Minute), d.duration(5*time.Minute)
		p.BaseDelay, p.MaxDelay = new(min(base, most)), new(max(base, most))
	}
	p.RetryTLSHandshake = maybe(d, func() bool { return d.in(2) })
	if d.in(3) {
		p.AdditionalStatuses = one(d, [][]int{{408}, {418, 425}, {499}, {425, 423}})
	}
	if d.in(3) {
		p.ExcludedStatuses = one(d, [][]int{{429}, {503}, {500, 599}, {504, 503, 429}})
	}
	if d.in(3) {
		p.IdempotencyKey, p.AllowNonIdempotent = "key", d.in(2)
	}
	return p
}

func (d *draw) redirectPolicy() *conformance.RedirectPolicy {
	if d.in(2) {
		return nil
	}
	return &conformance.RedirectPolicy{
		Follow: maybe(d, func() bool { return !d.in(5) }), MaxRedirects: maybe(d, func() int { return d.IntN(21) }),
		Scope: one(d, []string{"", "any", "same_host", "same_origin"}), ForbidDowngrade: d.in(2), ForwardCredentials: d.in(4),
	}
}

func (d *draw) response() *conformance.Response {
	r := new(conformance.Response)
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		r.Status = 100 + d.IntN(510)
	case 2:
		r.Status = one(d, []int{401, 403, 429, 503})
	case 3:
		r.Status = one(d, []int{301, 302, 303, 307, 308})
	default:
		r.Status = one(d, d.statuses)
	}
	for _, name := range []string{"Location", "Retry-After", "Date"} {
		for range one(d, []int{0, 1, 1, 1, 2}) {
			r.Headers = append(r.Headers, [2]string{one(d, []string{name, strings.ToLower(name), strings.ToUpper(name)}), d.value(name)})
		}
	}
	return r
}

// value returns a value for a field: one of a vector, a new one, or one with a changed character.
func (d *draw) value(name string) string {
	value := one(d, d.headers[strings.ToLower(name)])
	if d.in(2) {
		switch {
		case name == "Location":
			value = d.location()
		case name == "Retry-After" && d.in(2):
			value = fmt.Sprint(d.IntN(1000))
		default:
			value = d.time().Add(time.Duration(d.IntN(120)-10) * time.Second).Format(one(d, dates))
		}
	}
	if at := strings.IndexFunc(value, func(r rune) bool { return r > 0x7f }); value != "" && at < 0 && d.in(12) {
		at := d.IntN(len(value))
		value = value[:at] + string(rune(' '+d.IntN('\x7f'-' '))) + value[at+1:]
	}
	return value
}

// dates are the forms of HTTP-date, and one that is none.
var dates = []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", "Mon Jan _2 15:04:05 2006", time.RFC3339}

// location puts a reference together.
func (d *draw) location() string {
	return one(d, []string{"", "", "http:", "https:", "HTTP:", "ftp:"}) +
		one(d, []string{"", "//origin.example", "//ORIGIN.Example:80", "//other.example:443", "//user@origin.example", "//[2001:db8::1]", "//127.1", "//:80", "//a_b-c.example.", "//origin.example:0x1"}) +
		one(d, []string{"", "/", "/a/./b/../c", "../d", "./", "/e%2Ff", "/g h", "/{i}|^`\\", "j:k", "/%zz", "//l", "/é"}) +
		one(d, []string{"", "", "?", "?q=1", "?a b<>\"", "?{}|^`\\é"}) +
		one(d, []string{"", "", "#", "#f", "#g h<>{}é"})
}

// time returns a time in the decades around the vectors', often the same.
func (d *draw) time() time.Time {
	at := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)
	if d.in(4) {
		at = at.Add(time.Duration(d.Int64N(int64(60*365*24*time.Hour))) - 30*365*24*time.Hour)
		return at.Truncate(one(d, []time.Duration{time.Nanosecond, time.Millisecond, time.Second}))
	}
	return at
}

// duration returns a duration up to a limit, often a round one.
func (d *draw) duration(limit time.Duration) conformance.Duration {
	switch d.IntN(4) {
	case 0:
		return conformance.Duration(d.Int64N(int64(limit) + 1))
	case 1:
		return conformance.Duration(min(time.Duration(d.IntN(5000))*time.Millisecond, limit))
	case 2:
		return conformance.Duration(one(d, []time.Duration{0, time.Millisecond, time.Second, limit}))
	}
	return conformance.Duration(min(time.Duration(d.IntN(120))*time.Second, limit))
}
