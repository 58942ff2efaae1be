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

// Scenario is one fetch of an origin that does what the path says, and what
// must hold of it on both sides. The form is told in this folder's README.md.
type Scenario struct {
	// File it stands in and Name, unique over all files.
	File string `json:"-"`
	Name string `json:"name"`
	// Story tells in sentences what happens; Rules are those of docs/spec.md that it
	// is about, and Source says where the expectation comes from.
	Story  string   `json:"story"`
	Rules  []string `json:"rules"`
	Source string   `json:"source"`
	// Demo says that "fetchctl demo" shows it.
	Demo bool `json:"demo"`
	// Call is the method that is called: Fetch, FetchUnary or FetchMany. Empty means
	// Fetch.
	Call string `json:"call"`
	// Listener of the origin that is asked, and Path, its script. KEY in it stands
	// for the name by which the origin counts the requests, {NAME} for the address
	// of the listener NAME, percent-encoded as a value of the script.
	Listener string `json:"listener"`
	Path     string `json:"path"`
	// Request is a fetchd.v1.FetchRequest in protobuf's JSON form, without its url
	// and event_level. Empty means that nothing special is asked.
	Request json.RawMessage `json:"request"`
	// BodyBytes is the length of the request's body, which then consists of zeros. 0
	// means the body of Request.
	BodyBytes int `json:"body_bytes"`
	// Others are the lengths of the bodies of other tasks of FetchMany in the same
	// message. Each must succeed, unless the call is refused.
	Others []int `json:"others"`
	// Deadline of the call, such as "4s". Empty means none.
	Deadline string      `json:"deadline"`
	Want     Expectation `json:"want"`
	// Client says what a client must do that is only given the URL. Nil means that
	// it cannot be judged by this scenario.
	Client *ClientExpectation `json:"client"`
	// Breaks give a rule no occasion, so that the scenario must fail. Each scenario
	// of the demo has one for each of its rules that the demo shows.
	Breaks []Breakage `json:"breaks"`
}

// Expectation is what must hold of an outcome and of what the origin saw.
type Expectation struct {
	// Outcome is the part of a fetchd.v1.FetchOutcome that is compared, in protobuf's
	// JSON form: kind, rule, response.status_code, body_summary.truncated, and of the
	// error the class, failure type, retryable, retry_after, stop reason and rule. A
	// field that is not there must not be set. Compared where they are there:
	// response.content_length, response_attempt and error.reason.
	Outcome json.RawMessage `json:"outcome"`
	// Answers are the statuses of the attempts as they are reported at their ends, 0
	// for an attempt without a response. Empty means any.
	Answers []int32 `json:"answers"`
	// Refused is the field that the BadRequest of a call names, which ends with
	// INVALID_ARGUMENT and without an outcome. Empty means that there is an outcome.
	Refused string `json:"refused"`
	// Waits are those between the attempts, of which there is one more: each a part of
	// a fetchd.v1.RetryDecision.
	Waits []json.RawMessage `json:"waits"`
	// Requests that the origin saw.
	Requests int `json:"requests"`
	// FinalListener and FinalPath say what the final URL is. Empty means those asked.
	FinalListener string `json:"final_listener"`
	FinalPath     string `json:"final_path"`
	// Body is how many bytes of the origin's body are delivered, BodyFrom where they
	// begin, Digest of how many the digest is told though none are delivered.
	Body     int64 `json:"body"`
	BodyFrom int64 `json:"body_from"`
	Digest   int64 `json:"digest"`
	// Seen is what must hold of the requests, in order. Those beyond it may be
	// anything.
	Seen []Sight `json:"seen"`
}

// Sight is what must hold of one request as the origin saw it.
type Sight struct {
	// Method and Protocol, such as HTTP/2.0. Empty means any.
	Method   string `json:"method"`
	Protocol string `json:"protocol"`
	// Has are header fields with their values; Lacks those that must not be there.
	Has   map[string]string `json:"has"`
	Lacks []string          `json:"lacks"`
	// BodyBytes is how long the request's body is. Nil means any.
	BodyBytes *int64 `json:"body_bytes"`
}

// ClientExpectation is what must hold of a client that is only given the URL,
// where it differs from [Expectation].
type ClientExpectation struct {
	// Requests are the least and the most that the origin may see. Empty means
	// exactly as many as of a fetch: how many attempts a client makes is its own.
	Requests []int `json:"requests"`
	// Gaps are the least times between requests, such as "1s". Empty means the waits.
	Gaps []string `json:"gaps"`
	// SeenAny says that Seen is not compared: a client need not do it that way.
	SeenAny bool `json:"seen_any"`
}

// Breakage is how a rule loses its occasion.
type Breakage struct {
	Rule string `json:"rule"`
	// What the origin does instead.
	What string `json:"what"`
	// Path and Listener in place of the scenario's. Listener may be empty: the same.
	Path     string `json:"path"`
	Listener string `json:"listener"`
}

// Scenarios returns all scenarios, by file and in the order of each. The error is
// about the files themselves.
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
