package frontier

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Action is what becomes of a URL whose fetch failed.
type Action string

const (
	// Retry tries the URL again later, up to MaxURLRetries times.
	Retry Action = "retry"
	// Skip gives the URL up.
	Skip Action = "skip"
	// AbortHost gives up the URL and every other that waits for its host.
	AbortHost Action = "abort-host"
	// AbortCrawl gives up the URL, pauses the crawl, and stops the worker.
	AbortCrawl Action = "abort-crawl"
)

// Policy is what the scheduler makes of outcomes. [DefaultPolicy] is where to begin.
type Policy struct {
	// FollowRedirects has redirects followed; else a 3xx response is what was fetched.
	FollowRedirects bool
	// MaxRedirects are followed in one fetch, over all hosts: 0 to 20.
	MaxRedirects int
	// QueueRedirects adds the target of a redirect to the frontier and follows nothing.
	QueueRedirects bool
	// MaxURLRetries is how many more times a URL is tried after a failure that may pass.
	// Zero means none.
	MaxURLRetries int
	// RetryDelay is the wait before the first of them; it doubles up to MaxRetryDelay.
	RetryDelay, MaxRetryDelay time.Duration
	// MaxCrashes is how many times a fetch may be lost with what carried it out, before
	// the URL is given up. Zero means no limit.
	MaxCrashes int
	// On overrides what is done about an error class, by its name.
	On map[string]Action
}

// DefaultPolicy follows five redirects and tries a URL three more times, after a
// minute, two and four.
func DefaultPolicy() Policy {
	return Policy{FollowRedirects: true, MaxRedirects: 5, MaxURLRetries: 3,
		RetryDelay: time.Minute, MaxRetryDelay: 24 * time.Hour, MaxCrashes: 5}
}

// maxRedirects is what fetchd takes.
const maxRedirects = 20

// Environment reads CRAWLER_FOLLOW_REDIRECTS and CRAWLER_MAX_REDIRECTS (S3) over
// what p says. An empty variable changes nothing. The error names the variable,
// its value and what it may be.
func (p *Policy) Environment(get func(string) string) error {
	const follow, limit = "CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"
	if s := get(follow); s != "" {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%s is %q: give true or false", follow, s)
		}
		p.FollowRedirects = v
	}
	if s := get(limit); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxRedirects {
			return fmt.Errorf("%s is %q: give a number from 0 to %d", limit, s, maxRedirects)
		}
		p.MaxRedirects = n
	}
	return nil
}

// Set reads "CLASS=ACTION".
func (p *Policy) Set(rule string) error {
	class, action, found := strings.Cut(rule, "=")
	if !found {
		return fmt.Errorf("%q is no rule: give CLASS=ACTION, such as forbidden=abort-host", rule)
	}
	if err := checkRule(class, Action(action)); err != nil {
		return err
	}
	on := maps.Clone(p.On)
	if on == nil {
		on = make(map[string]Action)
	}
	on[class] = Action(action)
	p.On = on
	return nil
}

func (p *Policy) check() error {
	switch {
	case p.MaxRedirects < 0 || p.MaxRedirects > maxRedirects:
		return fmt.Errorf("MaxRedirects is %d: give 0 to %d", p.MaxRedirects, maxRedirects)
	case p.MaxURLRetries < 0 || p.MaxCrashes < 0:
		return fmt.Errorf("MaxURLRetries is %d and MaxCrashes %d: neither may be negative", p.MaxURLRetries, p.MaxCrashes)
	case p.RetryDelay < 0 || p.MaxRetryDelay < p.RetryDelay:
		return fmt.Errorf("RetryDelay is %v and MaxRetryDelay %v: give the first at least 0 and at most the second", p.RetryDelay, p.MaxRetryDelay)
	}
	for class, action := range p.On {
		if err := checkRule(class, action); err != nil {
			return err
		}
	}
	return nil
}

// checkRule says what is wrong with a rule of On.
func checkRule(class string, action Action) error {
	if err := CheckClass(class); err != nil {
		return err
	}
	if !slices.Contains([]Action{Retry, Skip, AbortHost, AbortCrawl}, action) {
		return fmt.Errorf("%q is no action: give retry, skip, abort-host or abort-crawl", action)
	}
	return nil
}

// action is what is done about a failure. Only a failure that may pass is tried
// again, and redirects that lead nowhere, which S3 leaves to the same policy.
func (p *Policy) action(class string, retryable bool) Action {
	if a, ok := p.On[class]; ok {
		return a
	}
	if retryable || class == reasonTooManyRedirects || class == reasonRedirectLoop {
		return Retry
	}
	return Skip
}

// retryIn is the wait after so many failures in a row, the last one counted, and
// at least as long as was asked for.
func (p *Policy) retryIn(failures int, asked time.Duration) time.Duration {
	d := p.RetryDelay
	for n := 1; n < failures && d > 0; n++ {
		if d > p.MaxRetryDelay/2 {
			d = p.MaxRetryDelay
			break
		}
		d *= 2
	}
	return max(d, asked)
}
