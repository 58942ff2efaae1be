package main

import (
	"fmt"
	"time"

	"fetchd/conformance/origin"
)

// answer is what a client reported about a URL.
type answer struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"` // of the body that it took for right
	Error  string `json:"error"`  // empty if it took a body for right
}

// verdict says how right a client was about a URL.
type verdict string

const (
	rightBody    verdict = "right body"
	rightFailure verdict = "right failure"
	wrongBody    verdict = "wrong body"   // a body that is not what the origin has
	lost         verdict = "lost"         // a failure, although a retry would have fetched it
	postedTwice  verdict = "posted twice" // whatever the client returned
	unanswered   verdict = "unanswered"   // the client was ended while it waited
)

// requests are those that the origin saw for a URL. The listener deadTLS sees connections and no requests.
type requests []origin.Request

// tolerance is how much too early a request may seem: the origin's clock is read a moment after the request arrives.
const tolerance = 20 * time.Millisecond

// judge returns the verdict about a URL.
func (j *job) judge(a *answer, digest string, seen requests) verdict {
	switch {
	case j.kind.method != "" && len(seen) > 1:
		return postedTwice
	case a == nil:
		return unanswered
	case a.Error != "" && j.fails:
		return rightFailure
	case a.Error != "":
		return lost
	case j.fails || a.SHA256 != digest:
		return wrongBody
	default:
		return rightBody
	}
}

// early counts the requests before the time that the origin had asked to wait for.
func (j *job) early(seen requests) (n int) {
	if j.notBefore == nil {
		return 0
	}
	for i := 1; i < len(seen); i++ {
		// Only the first answer has a Retry-After, unless all have.
		if (i == 1 || j.fails) && seen[i].Time.Before(j.notBefore(seen[i-1].Time).Add(-tolerance)) {
			n++
		}
	}
	return n
}

// repeated counts the requests that could only get the same answer again.
func (j *job) repeated(seen requests) int {
	if !j.single {
		return 0
	}
	return max(0, len(seen)-1)
}

// result is one run of a client.
type result struct {
	Verdicts map[verdict]int `json:"verdicts"`
	// Faults says for each kind of URL how often the client was wrong about it, and how.
	Faults map[string]map[verdict]int `json:"faults"`
	// Examples has an answer for each of these.
	Examples map[string]string `json:"examples"`

	Requests int            `json:"requests"` // that the origin saw, and handshakes of TLS
	Early    map[string]int `json:"early"`    // by kind of URL
	Repeated map[string]int `json:"repeated"` // by kind of URL

	// CPU is the client's, StartCPU what it uses for an empty list, and ServiceCPU that of fetchd.
	CPU        float64 `json:"cpu_seconds"`
	StartCPU   float64 `json:"start_cpu_seconds"`
	ServiceCPU float64 `json:"service_cpu_seconds"`
	Seconds    float64 `json:"seconds"`
	// Ended says why the client was ended, or how it failed.
	Ended string `json:"ended"`
}

func (r *result) String() string {
	return fmt.Sprintf("%v, %d requests, early %v, for nothing %v, %.2f s of CPU (%.2f s to start) and %.2f s of the service, %.0f s; %v %s",
		r.Verdicts, r.Requests, r.Early, r.Repeated, r.CPU, r.StartCPU, r.ServiceCPU, r.Seconds, r.Faults, r.Ended)
}

// judgeAll compares the answers of a client with what the origin saw.
func judgeAll(mix []*job, answers map[string]*answer, o *origin.Origin) *result {
	r := &result{Verdicts: make(map[verdict]int), Faults: make(map[string]map[verdict]int), Examples: make(map[string]string),
		Early: make(map[string]int), Repeated: make(map[string]int)}
	handshakes, dead := o.Connections(deadTLS), mix[0]
	r.Requests = handshakes
	for _, j := range mix {
		seen := requests(o.Requests(j.key))
		a := answers[j.url(o)]
		v := j.judge(a, j.digest(o), seen)
		r.Verdicts[v]++
		r.Requests += len(seen)
		count(r.Early, j, j.early(seen))
		count(r.Repeated, j, j.repeated(seen))
		if j.listener == deadTLS { // it sees no requests
			handshakes--
			dead = j
		}
		if v == rightBody || v == rightFailure {
			continue
		}
		if r.Faults[j.name] == nil {
			r.Faults[j.name] = make(map[verdict]int)
		}
		r.Faults[j.name][v]++
		if a != nil {
			r.Examples[fmt.Sprintf("%s: %s", j.name, v)] = a.Error
		}
	}
	count(r.Repeated, dead, handshakes)
	return r
}

func count(in map[string]int, j *job, n int) {
	if n > 0 {
		in[j.name] += n
	}
}

// sum adds the counts of all kinds.
func sum(of map[string]int) (n int) {
	for _, m := range of {
		n += m
	}
	return n
}
