package frontier

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

// RobotsState is what is known of the robots.txt that a URL depends on.
type RobotsState struct {
	Origin string // scheme://host, and :port unless it is the scheme's own
	// Known says that a worker has asked for the file, and that its answer was not
	// forgotten since by RetryFailed. All that follows is zero otherwise.
	Known    bool
	Decision robots.Decision
	// Cause says in a few words why there is no file, or why the last one is still used.
	Cause string
	// Age is the time since a worker last asked. Fresh says that the next one relies on
	// the answer instead of asking again; one that did not come is never fresh.
	Age   time.Duration
	Fresh bool
	// UnreachableFor is how long no answer has come; zero if the last one did.
	UnreachableFor time.Duration
}

// AskRobots tells what the store knows of the robots.txt of a URL in its normal
// form, and what that means for a crawler that calls itself userAgent. It is
// what a [Worker] obeys, and fetches nothing.
func AskRobots(ctx context.Context, s store.Store, userAgent, url string) (RobotsState, error) {
	origin, path := originOf(url)
	found, err := s.Robots(ctx, []string{origin})
	if err != nil {
		return RobotsState{}, fmt.Errorf("read robots.txt from the store: %w", err)
	}
	r, known := found[origin]
	if !known || r.Forgotten {
		return RobotsState{Origin: origin}, nil
	}
	return robotsState(r, userAgent, path), nil
}

func robotsState(r store.Robots, userAgent, path string) RobotsState {
	policy := policyOf(r, userAgent)
	return RobotsState{
		Origin: r.Origin, Known: true, Decision: policy.Decide(path), Cause: policy.Cause,
		Age: r.Age, Fresh: !r.Unreachable && r.Age < robots.FreshFor, UnreachableFor: r.UnreachableFor,
	}
}
