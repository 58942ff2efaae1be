package rulebook

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

// State is what is known about the robots.txt that applies to a URL.
type State struct {
	Origin string // scheme://host, and :port unless it is the scheme's default
	// Refresh reports that a user wants the file to be fetched again, which no worker has done yet.
	Refresh bool
	// Known reports whether a worker has fetched the file and Refresh is false. If it is false, the
	// fields below are zero.
	Known    bool
	Decision robots.Decision
	// Status is that of the last fetch; zero if there was no response.
	Status int
	// Rules are those of the last file, also of one that is too old; nil if there is none.
	Rules    *robots.Rules
	Sitemaps []string // that this file names
	Size     int      // of this file, in bytes
	// Cause says briefly why there is no file, or why an old one is still used. Text is what fetchd said
	// about the error; it may be empty.
	Cause, Text string
	// Age is the time since the last fetch. Fresh reports whether workers use the answer without
	// another fetch. The result of a fetch that failed is never fresh.
	Age   time.Duration
	Fresh bool
	// UnreachableFor is how long fetches have failed; zero if the last one succeeded.
	UnreachableFor time.Duration
}

// Ask returns what the store knows about the robots.txt that applies to a URL in its normal
// form, and what a worker with this user agent does. It fetches nothing.
func Ask(ctx context.Context, s Reader, userAgent, url string) (State, error) {
	origin, path := normal.OriginOf(url)
	found, err := s.Robots(ctx, []string{origin})
	if err != nil {
		return State{}, fmt.Errorf("read robots.txt from the store: %w", err)
	}
	r, known := found[origin]
	if !known || r.Forgotten {
		return State{Origin: origin, Refresh: r.Forgotten}, nil
	}
	return stateOf(r, userAgent, path), nil
}

func stateOf(r store.Robots, userAgent, path string) State {
	policy := policyOf(r, userAgent)
	s := State{
		Origin: r.Origin, Known: true, Decision: policy.Decide(path), Cause: policy.Cause, Text: r.ErrorText, Status: r.Status,
		Age: r.Age, Fresh: !r.Unreachable && r.Age < robots.FreshFor, UnreachableFor: r.UnreachableFor,
	}
	if r.HasBody && r.BodyStatus/100 == 2 {
		s.Rules, s.Sitemaps, s.Size = robots.Parse(r.Body, userAgent), robots.Sitemaps(r.Body), r.BodySize
	}
	return s
}
