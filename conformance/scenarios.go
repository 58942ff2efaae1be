package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
)

//go:embed scenarios/*.json
var scenarioFiles embed.FS

// Scenario is a fetch from an origin that does what the path says, and the expectations on both
// sides. README.md in this folder describes the format.
type Scenario struct {
	// File is the file of the scenario. Name is unique over all files.
	File string `json:"-"`
	Name string `json:"name"`
	// Story describes in sentences what happens. Rules are the rules of docs/spec.md that it
	// tests, and Source is where the expectation comes from.
	Story  string   `json:"story"`
	Rules  []string `json:"rules"`
	Source string   `json:"source"`
	// Demo is true if "fetchctl demo" shows the scenario.
	Demo bool `json:"demo"`
	// Call is the method to call: Fetch, FetchUnary or FetchMany. Empty means Fetch.
	Call string `json:"call"`
	// Listener is the listener of the origin, and Path the script. KEY in Path is replaced by
	// the key of the scenario, and {NAME} by the address of the listener NAME, percent-encoded
	// as a value of the script.
	Listener string `json:"listener"`
	Path     string `json:"path"`
	// Request is a fetchd.v1.FetchRequest in protobuf's JSON form, without url and event_level.
	// Empty means the default request.
	Request json.RawMessage `json:"request"`
	// BodyBytes is the length of a request body of zeros. 0 means the body of Request.
	BodyBytes int `json:"body_bytes"`
	// Others are the body lengths of other tasks in the same message of FetchMany. Each of them
	// must succeed, unless the call is refused.
	Others []int `json:"others"`
	// Deadline is the deadline of the call, such as "4s". Empty means none.
	Deadline string      `json:"deadline"`
	Want     Expectation `json:"want"`
	// Client has the expectations for a client that only knows the URL. Nil means that the
	// scenario does not apply to clients.
	Client *ClientExpectation `json:"client"`
	// Breaks are changes after which a rule does not apply, so that the scenario must fail. A
	// scenario of the demo has one for each rule that the demo shows.
	Breaks []Breakage `json:"breaks"`
}

// Expectation is what a scenario expects of the outcome and of the requests at the origin.
type Expectation struct {
	// Outcome is the compared part of a fetchd.v1.FetchOutcome, in protobuf's JSON form: kind,
	// decision_rule, response.status_code, body_summary.truncated and partial_content, and of the error the class,
	// failure type, retryable, retry_after, stop reason and class_rule. A field that is absent must be unset.
	// response.content_length, response_attempt and error.reason are compared only if present.
	Outcome json.RawMessage `json:"outcome"`
	// Answers are the statuses of the attempts in AttemptFinished, 0 for an attempt without a
	// response. Empty means any.
	Answers []int32 `json:"answers"`
	// Refused is the field that the call's BadRequest must name. The call then ends with
	// INVALID_ARGUMENT and without an outcome. Empty means that there is an outcome.
	Refused string `json:"refused"`
	// Waits are the waits between the attempts, each as a part of a fetchd.v1.RetryDecision.
	// There is one more attempt than waits.
	Waits []json.RawMessage `json:"waits"`
	// Requests is how many requests the origin receives.
	Requests int `json:"requests"`
	// FinalListener and FinalPath make up the final URL. Empty means those of the scenario.
	FinalListener string `json:"final_listener"`
	FinalPath     string `json:"final_path"`
	// Body is how many bytes of the origin's body are delivered, and BodyFrom where they start.
	// Digest is the length of a body of which only the digest is reported.
	Body     int64 `json:"body"`
	BodyFrom int64 `json:"body_from"`
	Digest   int64 `json:"digest"`
	// Stored is how many bytes the object has that the outcome names. 0 means that it names none.
	Stored int64 `json:"stored"`
	// LengthUnknown reports whether a fetch that succeeds does not know where its body ends.
	LengthUnknown bool `json:"length_unknown"`
	// Inline reports whether a body with delivery auto is in the outcome.
	Inline bool `json:"inline"`
	// Seen has the expectations of the first requests, in order. Further requests may be
	// anything.
	Seen []Sight `json:"seen"`
}

// Sight is what a scenario expects of one request at the origin.
type Sight struct {
	// Method is the method and Protocol the protocol, such as HTTP/2.0. Empty means any.
	Method   string `json:"method"`
	Protocol string `json:"protocol"`
	// Has are required header fields with their values. Lacks are forbidden header fields.
	Has   map[string]string `json:"has"`
	Lacks []string          `json:"lacks"`
	// BodyBytes is the length of the request body. Nil means any.
	BodyBytes *int64 `json:"body_bytes"`
}

// ClientExpectation is what a scenario expects of a client that only knows the URL, as far as that
// differs from [Expectation].
type ClientExpectation struct {
	// Requests are the minimum and the maximum of requests, for scenarios in which a client may
	// choose the number of attempts. Empty means exactly as many as for a fetch.
	Requests []int `json:"requests"`
	// Gaps are the minimum times between requests, such as "1s". Empty means the waits.
	Gaps []string `json:"gaps"`
	// SeenAny means that Seen is not compared, because a client may send other requests.
	SeenAny bool `json:"seen_any"`
}

// Breakage is a change of the origin after which a rule does not apply.
type Breakage struct {
	Rule string `json:"rule"`
	// What describes what the origin does instead.
	What string `json:"what"`
	// Path and Listener replace those of the scenario. An empty Listener keeps it.
	Path     string `json:"path"`
	Listener string `json:"listener"`
}

// Scenarios returns all scenarios in the order of the files. It returns an error if a file is
// malformed.
func Scenarios() ([]Scenario, error) {
	names, err := fs.Glob(scenarioFiles, "scenarios/*.json")
	if err != nil {
		return nil, err
	}
	var all []Scenario
	for _, name := range names {
		scenarios, err := readScenarios(name)
		if err != nil {
			return nil, fmt.Errorf("conformance: %s: %w", name, err)
		}
		all = append(all, scenarios...)
	}
	return all, nil
}

func readScenarios(name string) ([]Scenario, error) {
	data, err := scenarioFiles.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var file struct {
		About     string     `json:"about"`
		Scenarios []Scenario `json:"scenarios"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	for i := range file.Scenarios {
		file.Scenarios[i].File = name
	}
	return file.Scenarios, nil
}
