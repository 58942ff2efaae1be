package timeline

import (
	"fmt"

	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
)

// Verdict returns the decision after the attempt, such as "retry in 200ms (W1 backoff)".
func (a *Attempt) Verdict() string {
	d := a.Decision
	switch d.GetVerdict() {
	case pb.RetryVerdict_RETRY_VERDICT_UNSPECIFIED:
		return "in flight when the record ended"
	case pb.RetryVerdict_RETRY_VERDICT_DONE:
		return fmt.Sprintf("done (%s)", d.GetRule())
	}
	return show.Decision(d)
}
