package badrequest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
)

// faultsOf returns the violations in an error of [ReadJSON], as lines.
func faultsOf(err error) []string {
	var lines []string
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				lines = append(lines, v.GetField()+" "+v.GetDescription())
			}
		}
	}
	return lines
}

// TestReadJSON checks that a fault is reported with its field and what was expected.
func TestReadJSON(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		m          proto.Message
		want       []string
	}{
		{"both spellings", `{"url":"a","retry_policy":{"max_attempts":2},"timeoutPolicy":{"totalTimeout":"5s"}}`, new(pb.FetchRequest), nil},
		{"null means unset", `{"url":null,"headers":null,"labels":null,"retry_policy":null}`, new(pb.FetchRequest), nil},
		{"integers in quotes, with an exponent", `{"body_policy":{"max_size_bytes":"10"},"retry_policy":{"max_attempts":1e0,"jitter_seed":"18446744073709551615"}}`, new(pb.FetchRequest), nil},
		{"a misspelt field", `{"uri":"a"}`, new(pb.FetchRequest), []string{`uri is not a field of FetchRequest: did you mean "url"?`}},
		{"a misspelt field of a policy", `{"retry_policy":{"maxAttempt":2}}`, new(pb.FetchRequest), []string{`retry_policy.maxAttempt is not a field of RetryPolicy: did you mean "max_attempts"?`}},
		{"an unknown field", `{"headers":[{"Accept":"text/html"}]}`, new(pb.FetchRequest), []string{`headers[0].Accept is not a field of Header, which has name, value, raw_value`}},
		{"an unknown field with a long name and a deep value", `{"` + strings.Repeat("x", 100) + `":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, new(pb.FetchRequest),
			[]string{strings.Repeat("x", 60) + " is not a field of FetchRequest, which has url, method"}},
		{"headers as an object", `{"headers":{"Accept":["a"],"B":"c"}}`, new(pb.FetchRequest), []string{`headers is an object: give a list, such as [{"name": "Accept", "value": "text/html"}]`}},
		{"headers as lines", `{"headers":["Accept: a",null]}`, new(pb.FetchRequest),
			[]string{`headers[0] is text: give an object, such as {"name": "Accept", "value": "text/html"}`, `headers[1] is null: give an object`}},
		{"a body that is not base64", `{"body":"hello world"}`, new(pb.FetchRequest), []string{`body is not base64: give the bytes in base64, such as "aGVsbG8=" for hello`}},
		{"a body that is no text", `{"body":{"a":1}}`, new(pb.FetchRequest), []string{`body is an object: give the bytes in base64, such as "aGVsbG8=" for hello`}},
		{"a duration as a number", `{"timeout_policy":{"total_timeout":1.5}}`, new(pb.FetchRequest), []string{`timeout_policy.total_timeout is a number: give seconds with the unit s in quotes, such as "1.5s"`}},
		{"a duration of another unit", `{"timeout_policy":{"total_timeout":"500ms","idle_timeout":"2m"}}`, new(pb.FetchRequest),
			[]string{`timeout_policy.total_timeout is "500ms": give seconds with the unit s, such as "0.5s"`, `timeout_policy.idle_timeout is "2m": give seconds with the unit s, such as "120s"`}},
		{"a duration without a unit", `{"timeout_policy":{"total_timeout":"5"}}`, new(pb.FetchRequest), []string{`timeout_policy.total_timeout is "5": give seconds with the unit s, such as "5s"`}},
		{"a time", `{"precondition":{"last_modified_time":"yesterday"}}`, new(pb.FetchRequest), []string{`precondition.last_modified_time is "yesterday": give a time as in RFC 3339, such as "2026-01-02T15:04:05Z"`}},
		{"a time as a number", `{"precondition":{"last_modified_time":1}}`, new(pb.FetchRequest), []string{`precondition.last_modified_time is a number: give a time as in RFC 3339 in quotes`}},
		{"a value without its prefix", `{"cookie_mode":"none"}`, new(pb.FetchRequest), []string{`cookie_mode is "none": did you mean "COOKIE_MODE_NONE"?`}},
		{"a misspelt value", `{"retry_policy":{"profile":"RETRY_PROFILE_DOWNLOADS"}}`, new(pb.FetchRequest), []string{`retry_policy.profile is "RETRY_PROFILE_DOWNLOADS": did you mean "RETRY_PROFILE_DOWNLOAD"?`}},
		{"an unknown value of few", `{"event_level":"verbose"}`, new(pb.FetchRequest), []string{`event_level is "verbose": give one of EVENT_LEVEL_OUTCOME, EVENT_LEVEL_ATTEMPTS, EVENT_LEVEL_ALL`}},
		{"an unknown value of many", `{"error_classes":["plague"]}`, new(pb.ExplainRequest), []string{`error_classes[0] is "plague": give a value of ErrorClass, such as "ERROR_CLASS_DNS_NOT_FOUND"`}},
		{"a value of another type", `{"event_level":true}`, new(pb.FetchRequest), []string{`event_level is true: give the name of a value in quotes, such as "EVENT_LEVEL_OUTCOME"`}},
		{"an integer", `{"retry_policy":{"max_attempts":1.5,"jitter_seed":-1,"excluded_status_codes":["x",true]}}`, new(pb.FetchRequest),
			[]string{`retry_policy.max_attempts is "1.5": give a whole number that fits int32, such as 5`, `retry_policy.jitter_seed is "-1": give a whole number that fits uint64`,
				`retry_policy.excluded_status_codes[0] is "x"`, `retry_policy.excluded_status_codes[1] is true: give a whole number, such as 5`}},
		{"an integer that is too large", `{"retry_policy":{"max_attempts":3000000000}}`, new(pb.FetchRequest), []string{`retry_policy.max_attempts is "3000000000": give a whole number that fits int32`}},
		{"a number", `{"retry_policy":{"multiplier":"two"}}`, new(pb.FetchRequest), []string{`retry_policy.multiplier is text: give a number, such as 1.5`}},
		{"a boolean in quotes", `{"redirect_policy":{"follow":"true"}}`, new(pb.FetchRequest), []string{`redirect_policy.follow is text: give true or false, without quotes, such as true`}},
		{"text", `{"url":5}`, new(pb.FetchRequest), []string{`url is a number: give text in quotes, such as "text"`}},
		{"a policy", `{"retry_policy":[{"a":1}],"url":"a"}`, new(pb.FetchRequest), []string{`retry_policy is a list: give an object, such as {"profile": "RETRY_PROFILE_STANDARD"}`}},
		{"labels as a list", `{"labels":["a"]}`, new(pb.FetchRequest), []string{`labels is a list: give an object, such as {"name": "text"}`}},
		{"a label", `{"labels":{"a":1}}`, new(pb.FetchRequest), []string{`labels[0] is a number: give text in quotes`}},
		{"two of a oneof", `{"body_policy":{"inline":{},"digest":{}}}`, new(pb.FetchRequest), []string{`body_policy.digest is set together with inline: give one of the two`}},
		{"one of a oneof, and null", `{"body_policy":{"inline":null,"digest":{}},"bogus":1}`, new(pb.FetchRequest), []string{`bogus is not a field of FetchRequest`}},
		{"a message without fields", `{"body_policy":{"inline":true}}`, new(pb.FetchRequest), []string{`body_policy.inline is true: give an object, such as {}`}},
		{"a field twice, in two spellings", `{"retry_policy":{},"retryPolicy":{}}`, new(pb.FetchRequest), []string{`retry_policy is given twice: give it once`}},
		{"two faults", `{"uri":1,"body":2}`, new(pb.FetchRequest), []string{`uri is not`, `body is a number`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := ReadJSON([]byte(row.text), row.m, "the request")
			got := faultsOf(err)
			if (err == nil) != (row.want == nil) || !slices.EqualFunc(got, row.want, strings.HasPrefix) {
				t.Errorf("%q (%v), want %q", got, err, row.want)
			}
		})
	}
	for _, row := range []struct{ text, want string }{
		{``, `{"url": "https://example.com/"}`}, {`[]`, `{"url": "https://example.com/"}`}, {`"a"`, "send an object"}, {`{`, "unexpected"},
		{`{"url":"a"} x`, "invalid value x"}, {`{"url":"a",}`, "unexpected"}, {"{\"url\":\"\xff\"}", "UTF-8"}, {`{"uri":1,`, "unknown field"},
		{"\xff\xfe{\x00", "invalid value \ufffd"}, {"{\xff", "\ufffd"},
	} {
		if err := ReadJSON([]byte(row.text), new(pb.FetchRequest), "the request"); err == nil || !strings.Contains(fmt.Sprint(err), row.want) || !strings.Contains(fmt.Sprint(err), "not a FetchRequest in JSON") {
			t.Errorf("%q: %v, want %q", row.text, err, row.want)
		} else if !utf8.ValidString(fmt.Sprint(err)) {
			t.Errorf("%q: %v is not UTF-8", row.text, err)
		}
	}
	if err := ReadJSON([]byte(`{`), new(pb.FetchRequest), "the header Fetchd-Request"); !strings.Contains(fmt.Sprint(err), "the header Fetchd-Request is not a FetchRequest") {
		t.Errorf("in a header: %v", err)
	}
}

const manyElements = 10_000

// TestReadJSONIsBounded sends the text that has the most faults.
func TestReadJSONIsBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text string }{
		{"unknown fields", `{` + strings.Repeat(`"retry_polizy_with_more_to_it_than_others":1,`, manyElements) + `"a":1}`},
		{"a long name", `{"` + strings.Repeat("a", 3<<20) + `":1}`},
		{"unknown values", `{"faults":[` + strings.Repeat(`"ERROR_CLASS_DNS_NOT_FOUNDED_IN_TIME",`, manyElements) + `"a"]}`},
		{"depth", `{"a":` + strings.Repeat(`[`, manyElements) + strings.Repeat(`]`, manyElements) + `}`},
	} {
		err := ReadJSON([]byte(row.text), new(pb.ExplainRequest), "the request")
		if got := len(fmt.Sprint(err)); err == nil || got > 2*MaxBytes {
			t.Errorf("%s: an error of %d bytes, want at most %d", row.name, got, 2*MaxBytes)
		}
	}
}

// FuzzReadJSON checks that a request is rejected if and only if protojson rejects it, with text that
// is valid in a status. If the JSON is well-formed, a violation says why.
func FuzzReadJSON(f *testing.F) {
	for _, seed := range []string{`{"url":"a","retryPolicy":{"max_attempts":2,"base_delay":"5s"},"labels":{"a":"b"}}`, `{"headers":{"Accept":"a"}}`, `{"body":"a","body_policy":{"inline":{},"digest":1}}`,
		`{"precondition":{"last_modified_time":"2026-01-02T15:04:05Z","etags":[1]}}`, `{"a":[{}],"url":null,"url":1}`, `[`, `{"retry_policy":{"max_attempts":1e400,"jitter_seed":"-0"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := protojson.Unmarshal(text, new(pb.FetchRequest))
		err := ReadJSON(text, new(pb.FetchRequest), "the request")
		if (err == nil) != (want == nil) {
			t.Fatalf("%q: %v, want %v", text, err, want)
		}
		if want != nil && len(faultsOf(err)) == 0 && !strings.Contains(fmt.Sprint(err), "not a FetchRequest in JSON") {
			t.Errorf("%q: %v", text, err)
		}
		if !utf8.ValidString(fmt.Sprint(err)) {
			t.Errorf("%q: %v is not UTF-8", text, err)
		}
		if len(fmt.Sprint(err)) > 2*MaxBytes {
			t.Errorf("%q: an error of %d bytes", text, len(fmt.Sprint(err)))
		}
		if faults := explainJSON(text, new(pb.FetchRequest).ProtoReflect().Descriptor()); want == nil && faults != nil {
			t.Errorf("%q is valid, but has the faults %q", text, faultsOf(faults))
		}
	})
}
