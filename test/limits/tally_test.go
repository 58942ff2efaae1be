//go:build linux

package limits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

// tally counts the ends of one row's calls and tasks.
type tally struct {
	mu       sync.Mutex
	sent     int
	outcomes int
	refused  int            // with RESOURCE_EXHAUSTED before any event
	lost     int            // neither
	ends     map[string]int // by kind or class of the outcome, or code
}

func (a *tally) send(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent += n
}

// outcome counts a fetch with an outcome.
func (a *tally) outcome(o *pb.FetchOutcome) {
	end := strings.TrimPrefix(o.GetKind().String(), "OUTCOME_KIND_")
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED {
		end = strings.TrimPrefix(o.GetError().GetErrorClass().String(), "ERROR_CLASS_")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes++
	a.count(end, 1)
}

// code counts n fetches whose call ended with a status and no event before it. OK means
// an outcome, and RESOURCE_EXHAUSTED a refusal.
func (a *tally) code(code codes.Code, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch code {
	case codes.OK:
		a.outcomes += n
	case codes.ResourceExhausted:
		a.refused += n
	default:
		a.lost += n
	}
	a.count(code.String(), n)
}

// fail counts n fetches whose call ended with err after it was admitted, or with an error
// that is no refusal.
func (a *tally) fail(err error, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost += n
	a.count("lost "+fmt.Sprint(err), n)
}

func (a *tally) count(end string, n int) {
	if a.ends == nil {
		a.ends = make(map[string]int)
	}
	a.ends[end] += n
}

// String lists the ends, the most frequent first.
func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, end := range slices.SortedFunc(maps.Keys(a.ends), func(x, y string) int {
		return cmp.Or(cmp.Compare(a.ends[y], a.ends[x]), cmp.Compare(x, y))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", a.ends[end], end))
	}
	return strings.Join(parts, ", ")
}
