package timeline

import "fetchd/cmd/fetchctl/show"

// Next returns the decision after the attempt, such as "retry in 200ms (W1 backoff)".
func (a *Attempt) Next() string {
	if a.Decision == nil {
		return "in flight when the record ended"
	}
	return show.Decision(a.Decision)
}
