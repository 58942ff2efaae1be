// Package rules has one sentence for each rule of docs/spec.md, and the departures from the source
// documents (X1 and up). The command line, the console and docs/outcomes.md show them.
package rules

import (
	"slices"
	"strings"
)

// Rule is a rule of the specification in one sentence.
type Rule struct {
	ID       string // a letter and a number, such as "H6"
	Sentence string
}

// Sentence returns the sentence of a rule, or "" if the rule has none.
func Sentence(id string) string {
	for _, r := range All {
		if r.ID == id {
			return r.Sentence
		}
	}
	return ""
}

// Exceptions returns the rules that limit or replace a rule in some cases, in the order of the specification.
func Exceptions(id string) []Rule {
	var all []Rule
	for _, r := range All {
		if slices.Contains(strings.Fields(excepted[r.ID]), id) {
			all = append(all, r)
		}
	}
	return all
}

// retried are the classes that are retried.
const retried = "N1 N2 N3 N4 N5 N7 N8 N9 N11 H1 H2 H5 H10 H11"

// excepted has the rules that a rule limits or replaces in some cases.
var excepted = map[string]string{
	"N1": "P1", "H9": "P1 R1 R2 R3", "H10": "H5 H6", "H11": "H6 H10 W1",
	"W2": "W1", "W3": "W2", "W4": "W1 W2 I1",
	"I2": retried + " I6", "I3": "D1 I2", "I4": retried + " I1",
	"B2": "H6 I5", "B3": "N8 N9 I1", "B8": "B1 B3", "B9": "I5",
	"A2": "H3 W1 I2", "A3": "A2", "A5": "I6", "A6": "I6", "A8": "H3 H4 W1 I2",
}

// All has the rules in the order of the specification. It must not be changed.
var All = []Rule{
	{"N1", "The name does not exist or could not be looked up in time: transient, retried."},
	{"N2", "The connection was refused: transient, retried."},
	{"N3", "There was no route, or the connection or its handshake took too long: transient, retried."},
	{"N4", "The connection broke before the response head was complete, or the response may be the answer to another request: transient, retried."},
	{"N5", "The TLS handshake failed, but not because of the certificate or a timeout: transient and retried in profile standard, permanent in download."},
	{"N6", "The certificate is not acceptable: permanent, never retried."},
	{"N7", "The response head did not arrive in time, or the request could not be written in time: transient, retried."},
	{"N8", "The body was truncated: transient, retried if no byte was delivered or the body can be continued."},
	{"N9", "The body stalled for too long: transient, retried if no byte was delivered or the body can be continued."},
	{"N10", "The peer does not speak HTTP or breaks its framing: permanent, never retried."},
	{"N11", "The time limit of one attempt passed without another failure: transient, retried."},

	{"H0", "A 2xx whose body is complete and meets the request's conditions is a success."},
	{"H1", "500 to 599: transient, retried."},
	{"H2", "429: the origin limits the rate; retried after Retry-After, unless that is too long."},
	{"H3", "401: credentials are needed; retried only through an auth provider."},
	{"H4", "403: other credentials are needed; retried only with a signature that it asks for, if the operator allows that."},
	{"H5", "408: transient; retried in profile download, not in standard. A later fetch may succeed."},
	{"H6", "Any other 4xx: permanent, never retried."},
	{"H7", "A 304 to a conditional request is a success without a body."},
	{"H8", "A 304 to a request without a condition: permanent, never retried."},
	{"H9", "A 3xx that must not be followed is the result, not an error."},
	{"H10", "A status in additional_status_codes: retried."},
	{"H11", "A 421 on a connection that had carried another request: transient, retried at once on a new connection."},

	{"R1", "More redirects than max_redirects: permanent, never retried."},
	{"R2", "A redirect leads back to a request that was already made: permanent, never retried."},
	{"R3", "The Location is unusable, or the redirect policy forbids it: permanent, never retried."},
	{"R4", "A failed hop has the class of its own failure, with the URL of the hop."},

	{"C1", "The media type is not among those accepted: permanent, never retried."},
	{"C2", "The body is empty where one is required: permanent, never retried."},
	{"C3", "The content coding or the charset is broken: permanent, never retried."},
	{"C4", "The body is larger than a limit: permanent, never retried."},
	{"C5", "The body does not have the expected digest or size, or is only a part where the whole is to be stored: permanent, never retried."},

	{"P1", "The egress policy forbids the target, at any hop: permanent, never retried."},
	{"P2", "The request is malformed: permanent, never retried."},
	{"P3", "The time limit of the whole fetch has passed; a later fetch may succeed."},
	{"P4", "The caller cancelled the fetch."},
	{"P5", "The server is shutting down; a later fetch may succeed."},
	{"P6", "The server failed: never retried."},
	{"P7", "The server has no memory left for this fetch; a later fetch may succeed."},
	{"P8", "A store did not take the body or the records, or is down; the origin is not asked again because of it."},

	{"W1", "The wait is the backoff of the profile, unless a Retry-After says otherwise."},
	{"W2", "The wait after a 429 or 503 is exactly its Retry-After, in seconds or as a date."},
	{"W3", "A Retry-After longer than max_retry_after ends the fetch; the outcome reports the value."},
	{"W4", "A wait that would pass the deadline is not started."},
	{"W5", "A wait ends at once on cancellation and on shutdown."},
	{"W6", "Fetches share connections, TLS sessions, lookups, refreshes of credentials, the pause of a store, slots, files and memory; nothing else of one fetch affects another."},

	{"I1", "Idempotent methods are retried as their error class allows."},
	{"I2", "POST and PATCH are sent once, unless the request has an idempotency key and allows retries; the key is the same on every attempt."},
	{"I3", "If a redirect turned the request into one that may be repeated, only the failed hop is retried."},
	{"I4", "There are at most max_attempts attempts."},
	{"I5", "The outcome keeps the last response: its status, its headers, and the start of a failed response's body."},
	{"I6", "Each hop sends its request at most once, unless the origin has not processed it; a connection that breaks is an ordinary failed attempt."},
	{"I7", "If a fetch must stop for several reasons, the first in the order of the specification is reported."},

	{"D1", "At most max_redirects redirects are followed; not one request more is sent."},
	{"D2", "301 and 302 turn POST into GET, 303 turns everything but HEAD into GET; 307 and 308 keep the method."},
	{"D3", "A loop is the same method, URL and headers as in an earlier hop; it is detected before the request is sent again."},
	{"D4", "Only headers that identify no one and grant no access are forwarded to another origin."},
	{"D5", "The final URL is the URL of the response in the outcome; a fragment is inherited through redirects."},
	{"D6", "Each hop is reported with its method, URL, status, Location and timings."},
	{"D7", "Cookies are kept within one fetch, and only if the caller asks for it."},
	{"D8", "A Location is resolved as RFC 3986 says and percent-encoded where it must be, and nothing else in it is normalized."},

	{"B1", "The body is buffered until the attempt has succeeded, so a truncated body is an ordinary retry."},
	{"B2", "A body that breaks after bytes were delivered is continued at the first byte not delivered, if it is still the same."},
	{"B3", "A body that breaks after bytes were delivered, and cannot be continued, ends the fetch; a later fetch may succeed."},
	{"B4", "A body is streamed, returned in the outcome, returned so only if it is small, only hashed, or not read, as the caller chooses."},
	{"B5", "The outcome reports the size and the digest of the body, whether it was truncated at the limit, and whether it is only a part of the whole."},
	{"B6", "Content codings are decoded, unless the caller wants the bytes as sent."},
	{"B7", "A caller that reads slowly does not use up the attempt's time; without progress for 30 s the call ends with ABORTED."},
	{"B8", "With delivery store the service writes the body to a store; the object is visible only when the fetch has succeeded."},
	{"B9", "With record_policy, every exchange is written to WARC files; the records are there before the outcome."},

	{"A1", "A provider's credential is sent only to the origins it is configured for."},
	{"A2", "On a 401 from the provider's origin the credential is refreshed, and the request is sent again at once, but only once."},
	{"A3", "Each credential is refreshed once at a time; fetches with the same rejected token share the refresh."},
	{"A4", "Secrets never appear in an event, a log, a metric or an error."},
	{"A5", "A request with NTLM, Negotiate or a similar scheme is sent alone, on a connection that no other request uses."},
	{"A6", "A client certificate is presented only on connections of the callers it is configured for; they share these connections."},
	{"A7", "A provider that signs makes a new signature for each transmission to its origins, when everything else about it is final; nothing is signed for another origin."},
	{"A8", "A provider can wait until an origin asks for a signature: the next attempt is signed as a 401 asks, and if the operator allows it as a 403 asks."},
}
