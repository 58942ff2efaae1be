package conversion

import (
	"testing"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// TestConverterKeepsNothing checks that without AttemptFinished events the converter keeps no
// response during a wait.
func TestConverterKeepsNothing(t *testing.T) {
	t.Parallel()
	var told Events
	told.Event(new(pb.FetchEvent), fetch.ResponseStarted{Attempt: 1, Response: &fetch.Response{StatusCode: 200}})
	if told.message != nil {
		t.Errorf("%v is kept", told.message)
	}
}
