package frontier

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Action is what to do with a URL whose fetch failed.
type Action string

const (
	// Retry tries the URL again later, up to MaxURLRetries times.
	Retry Action = "retry"
	// Skip makes the URL dead.
	Skip Action = "skip"
	// AbortHost makes the URL dead, and all waiting URLs of its host.
	AbortHost Action = "abort-host"
	// AbortCrawl makes the URL dead, pauses the crawl, and stops the worker.
	AbortCrawl Action = "abort-crawl"
)

// Policy decides what follows from outcomes. Start from [DefaultPolicy].
type Policy struct {
	// FollowRedirects follows redirects. Without it, a 3xx response is the result of a fetch.
	FollowRedirects bool
	// MaxRedirects limits the redirects of one fetch, over all hosts: 0 to 20.
	MaxRedirects int
	// QueueRedirects adds the targets of redirects to the frontier instead of following them.
	QueueRedirects bool
	// MaxURLRetries is how many more times a URL is tried after failures that may be temporary.
	// Zero means none.
	MaxURLRetries int
	// RetryDelay is the wait before the first retry. It doubles up to MaxRetryDelay.
	RetryDelay, MaxRetryDelay time.Duration
	// MaxCrashes is the number of lost fetches after which the URL is dead. Zero means no limit.
	MaxCrashes int
	// On overrides the action for error classes, by their names.
	On map[string]Action
}

// DefaultPolicy follows five redirects and tries a URL three more times, after one, two and four
// minutes.
func DefaultPolicy() Policy {
	return Policy{FollowRedirects: true, MaxRedirects: 5, MaxURLRetries: 3,
		RetryDelay: time.Minute, MaxRetryDelay: 24 * time.Hour, MaxCrashes: 5}
}

// maxRedirects is the maximum that fetchd accepts.
const maxRedirects = 20

// Environment overrides p by the environment variables CRAWLER_FOLLOW_REDIRECTS and
// CRAWLER_MAX_REDIRECTS (S3). Empty variables change nothing. The error names the variable, its
// value and the valid values.
func (p *Policy) Environment(get func(string) string) error {
	const follow, limit = "CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"
	if s := get(follow); s != "" {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%s is %q: use true or false", follow, s)
		}
		p.FollowRedirects = v
	}
	if s := get(limit); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxRedirects {
			return fmt.Errorf("%s is %q: use a number from 0 to %d", limit, s, maxRedirects)
		}
		p.MaxRedirects = n
	}
	return nil
}

// Set adds a rule "CLASS=ACTION" to On.
func (p *Policy) Set(rule string) error {
	class, action, found := strings.Cut(rule, "=")
	if !found {
		return fmt.Errorf("%q is not a rule: use CLASS=ACTION, such as forbidden=abort-host", rule)
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
		return fmt.Errorf("MaxRedirects is %d: use 0 to %d", p.MaxRedirects, maxRedirects)
	case p.MaxURLRetries < 0 || p.MaxCrashes < 0:
		return fmt.Errorf("MaxURLRetries is %d and MaxCrashes is %d: they must not be negative", p.MaxURLRetries, p.MaxCrashes)
	case p.RetryDelay < 0 || p.MaxRetryDelay < p.RetryDelay:
		return fmt.Errorf("RetryDelay is %v and MaxRetryDelay is %v: RetryDelay must be from 0 to MaxRetryDelay", p.RetryDelay, p.MaxRetryDelay)
	}
	for class, action := range p.On {
		if err := checkRule(class, action); err != nil {
			return err
		}
	}
	return nil
}

// checkRule returns an error if a rule of On is not valid.
func checkRule(class string, action Action) error {
	if err := CheckClass(class); err != nil {
		return err
	}
	if !slices.Contains([]Action{Retry, Skip, AbortHost, AbortCrawl}, action) {
		return fmt.Errorf("unknown action %q: use retry, skip, abort-host or abort-crawl", action)
	}
	return nil
}

// action returns what to do about a failure. By default only temporary failures are retried, and
// redirects that lead nowhere, which S3 leaves to the same policy.
func (p *Policy) action(class string, retryable bool) Action {
	if a, ok := p.On[class]; ok {
		return a
	}
	if retryable || class == reasonTooManyRedirects || class == reasonRedirectLoop {
		return Retry
	}
	return Skip
}

// retryIn returns the wait after a number of failures in a row. It is at least as long as the
// origin asked for.
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
