package timeline

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "fetchd/gen/fetchd/v1"
)

// Verdict says in a line what was decided after the attempt, such as
// "retry in 200ms (W1 backoff)".
func (a *Attempt) Verdict() string {
	d := a.Decision
	switch d.GetVerdict() {
	case pb.RetryVerdict_RETRY_VERDICT_UNSPECIFIED:
		return "under way when the record ended"
	case pb.RetryVerdict_RETRY_VERDICT_DONE:
		return fmt.Sprintf("done (%s)", d.GetRule())
	case pb.RetryVerdict_RETRY_VERDICT_RETRY:
		where := ""
		if d.GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
			where = " at the failed hop"
		}
		return fmt.Sprintf("retry in %s%s (%s %s)", d.GetDelay().AsDuration(), where, d.GetRule(), Words(d.GetDelaySource()))
	}
	return fmt.Sprintf("no retry: %s (%s)", Words(d.GetVerdict()), d.GetRule())
}

// Label is the name of an enum value without its prefix and in lower case, such
// as "http_server_error".
func Label(e protoreflect.Enum) string {
	values := e.Descriptor().Values()
	value := values.ByNumber(e.Number())
	if value == nil {
		return fmt.Sprintf("unknown_%d", e.Number())
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}

// Words is a label for a sentence, such as "not retryable".
func Words(e protoreflect.Enum) string { return strings.ReplaceAll(Label(e), "_", " ") }
