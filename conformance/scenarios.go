package conformance

import (
	"embed"
	"time"
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
	// Call is how a service is asked: stream, unary or many, which asks for several fetches at once. Empty means stream.
	Call string `json:"call"`
	// Listener is the listener of the origin, and Path the script. KEY in Path is replaced by
	// the key of the scenario, and {NAME} by the address of the listener NAME, percent-encoded
	// as a value of the script.
	Listener string `json:"listener"`
	Path     string `json:"path"`
	// Fetch is what is asked for, except the URL.
	Fetch Fetch `json:"fetch"`
	// BodyBytes is the length of a request body of zeros. 0 means the body of Fetch.
	BodyBytes int `json:"body_bytes"`
	// Others are the body lengths of other fetches that are asked for together with this one. Each of them
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
	// Outcome is how the fetch must end.
	Outcome Outcome `json:"outcome"`
	// Answers are the reported statuses of the attempts, 0 for an attempt without a
	// response. Empty means any.
	Answers []int32 `json:"answers"`
	// Refused is the part of the request because of which a service must refuse it as invalid, before anything is
	// sent. Empty means that there is an outcome.
	Refused string `json:"refused"`
	// Waits are the waits between the attempts. There is one more attempt than waits.
	Waits []Wait `json:"waits"`
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

// Fetch is what a scenario asks for. What is absent has the default of the profile.
type Fetch struct {
	Method string `json:"method"`
	// Headers are pairs of a name and a value, and Body is the body.
	Headers        [][2]string     `json:"headers"`
	Body           string          `json:"body"`
	RetryPolicy    *RetryPolicy    `json:"retry_policy"`
	RedirectPolicy *RedirectPolicy `json:"redirect_policy"`
	TimeLimits     *TimeLimits     `json:"time_limits"`
	// Condition makes a request conditional.
	Condition *struct {
		ETags        []string   `json:"etags"`
		LastModified *time.Time `json:"last_modified"`
	} `json:"condition"`
	// Content and Integrity are demands on the body (C1 to C5).
	Content *struct {
		MediaTypes     []string `json:"media_types"`
		RequireBody    bool     `json:"require_body"`
		RequireCharset bool     `json:"require_charset"`
	} `json:"content"`
	Integrity *struct {
		SHA256 string `json:"sha256"`
		Size   *int64 `json:"size"`
	} `json:"integrity"`
	// Cookies reports whether cookies that are set within the fetch are sent back in it.
	Cookies bool `json:"cookies"`
	// Credential is the provider of credentials that a service must have for the scenario.
	Credential string `json:"credential"`
	// MaxBodyBytes limits the body. Truncate cuts a longer one off, which is otherwise a failure.
	MaxBodyBytes int64     `json:"max_body_bytes"`
	Truncate     bool      `json:"truncate"`
	Delivery     *Delivery `json:"delivery"`
}

// TimeLimits are the time limits of a fetch, an attempt, a response head, and silence in a body.
type TimeLimits struct {
	Total   *Duration `json:"total"`
	Attempt *Duration `json:"attempt"`
	Header  *Duration `json:"header"`
	Idle    *Duration `json:"idle"`
}

// Delivery is what happens with the body.
type Delivery struct {
	// How is stream, auto, digest or store (section 7 of the specification).
	How string `json:"how"`
	// HoldBackBytes are held back until the attempt has succeeded. Nil means the default.
	HoldBackBytes *int64 `json:"hold_back_bytes"`
	// Recovery is none, resume (empty) or restart.
	Recovery string `json:"recovery"`
	// ResumePoint continues a body of which the caller has the first bytes.
	ResumePoint *struct {
		Offset    int64  `json:"offset"`
		Validator string `json:"validator"`
	} `json:"resume_point"`
	// Store and Key are where the body goes if How is store.
	Store string `json:"store"`
	Key   string `json:"key"`
}

// Outcome is how a fetch ends. What is absent must be absent.
type Outcome struct {
	// Kind is success, not_modified, redirect or failed, and Rule the rule that decides.
	Kind string `json:"kind"`
	Rule string `json:"rule"`
	// Status is that of the last response. 0 means that there was none.
	Status int `json:"status"`
	// Truncated and PartialContent are about the body.
	Truncated      bool `json:"truncated"`
	PartialContent bool `json:"partial_content"`
	// Failure is nil if nothing failed. Stop is why no attempt followed.
	Failure *Failure `json:"failure"`
	Stop    string   `json:"stop"`
	// ContentLength and ResponseAttempt, the attempt of the last response, are compared only if given.
	ContentLength   *int64 `json:"content_length"`
	ResponseAttempt int    `json:"response_attempt"`
}

// Wait is a wait between two attempts.
type Wait struct {
	Rule   string   `json:"rule"`
	Delay  Duration `json:"delay"`
	Source string   `json:"source"`
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
	// MayStartAgain means that a request without Range is as good as one for the rest of a body: a client that delivers
	// nothing before a body is complete starts again (B2).
	MayStartAgain bool `json:"may_start_again"`
	// MaySucceedWith means that the client may also succeed where a fetch fails, with the bytes of the origin's body
	// from the first number to before the second. Empty means that it must fail.
	MaySucceedWith []int64 `json:"may_succeed_with"`
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
func Scenarios() (all []Scenario, err error) {
	err = load(scenarioFiles, "scenarios/*.json", func(name string, file *struct {
		About     string     `json:"about"`
		Scenarios []Scenario `json:"scenarios"`
	}) error {
		for i := range file.Scenarios {
			file.Scenarios[i].File = name
		}
		all = append(all, file.Scenarios...)
		return nil
	})
	return all, err
}
