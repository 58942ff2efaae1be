package classify

// Class identifies what went wrong in an attempt. Its numbers are those of
// fetchd.v1.ErrorClass, and its names are those of that enum in lower_snake_case.
type Class uint8

// The classes, in the order of spec §3. The zero value means no failure.
const (
	NoClass               Class = iota
	DNSNotFound                 // N1: the name does not exist.
	DNSFailure                  // N1: the name lookup failed or timed out.
	ConnectRefused              // N2: nothing listens on the port.
	ConnectTimeout              // N3: the connection or the handshake timed out.
	ConnectFailure              // N3: no route, or another failure to connect.
	ConnectionReset             // N4: the connection broke before the response head was complete.
	TLSHandshake                // N5: the handshake failed for another reason than certificate or timeout.
	TLSCertificate              // N6: the certificate is not acceptable.
	ResponseTimeout             // N7: the response head did not arrive in time.
	WriteTimeout                // N7: the request was not written in time.
	BodyInterrupted             // N8: the body ended early.
	BodyTimeout                 // N9: the body stopped arriving.
	Protocol                    // N10: the peer does not speak HTTP, or violates its framing.
	AttemptTimeout              // N11: the attempt's time limit passed without another failure.
	HTTPServerError             // H1: 500 to 599.
	RateLimited                 // H2: 429.
	AuthRequired                // H3: 401.
	Forbidden                   // H4: 403.
	RequestTimeout              // H5: 408.
	HTTPClientError             // H6: any other 4xx.
	UnexpectedNotModified       // H8: a 304 to a request without a condition.
	TooManyRedirects            // R1: more redirects than allowed.
	RedirectLoop                // R2: a redirect leads to a request already made in this chain.
	RedirectRejected            // R3: the Location is invalid, or the policy forbids it.
	ContentType                 // C1: the media type is not wanted.
	EmptyBody                   // C2: the body is empty.
	Undecodable                 // C3: the content coding or charset is broken.
	BodyTooLarge                // C4: the body is too large.
	Integrity                   // C5: the body does not match the size or digest the caller expects.
	TargetBlocked               // P1: the egress policy forbids the target.
	InvalidRequest              // P2: the request is malformed.
	Deadline                    // P3: the time limit of the fetch passed.
	Cancelled                   // P4: the caller cancelled the fetch.
	Shutdown                    // P5: this server is shutting down.
	Internal                    // P6: this server has a bug or failed internally.
	OutOfMemory                 // P7: the memory budget of this server is exhausted.
	StoreFailure                // P8: a store of this server did not take the body or the records.
)

// FailureType groups the classes by what a scheduler should do about a failure
// (S4). Its numbers are those of fetchd.v1.FailureType.
type FailureType uint8

// The failure types. The zero value means no failure.
const (
	NoFailureType FailureType = iota
	Transient                 // May go away by itself.
	Permanent                 // Will not go away by itself.
	RateLimit                 // The origin limits the rate.
	NeedsAuth                 // The origin requires credentials, or different ones.
)

// row is the row of one class in the table of spec §3.
type row struct {
	name    string
	rule    Rule
	failure FailureType
	retried bool
}

// classes is the table of spec §3, with one row per class. [Policy.retries] handles
// the rules that also depend on the policy: H5, H10, N5 and the excluded statuses. For H11 see decideFailure.
var classes = [...]row{
	NoClass:               {"", "", NoFailureType, false},
	DNSNotFound:           {"dns_not_found", "N1", Transient, true},
	DNSFailure:            {"dns_failure", "N1", Transient, true},
	ConnectRefused:        {"connect_refused", "N2", Transient, true},
	ConnectTimeout:        {"connect_timeout", "N3", Transient, true},
	ConnectFailure:        {"connect_failure", "N3", Transient, true},
	ConnectionReset:       {"connection_reset", "N4", Transient, true},
	TLSHandshake:          {"tls_handshake", "N5", Transient, true},
	TLSCertificate:        {"tls_certificate", "N6", Permanent, false},
	ResponseTimeout:       {"response_timeout", "N7", Transient, true},
	WriteTimeout:          {"write_timeout", "N7", Transient, true},
	BodyInterrupted:       {"body_interrupted", "N8", Transient, true},
	BodyTimeout:           {"body_timeout", "N9", Transient, true},
	Protocol:              {"protocol", "N10", Permanent, false},
	AttemptTimeout:        {"attempt_timeout", "N11", Transient, true},
	HTTPServerError:       {"http_server_error", "H1", Transient, true},
	RateLimited:           {"rate_limited", "H2", RateLimit, true},
	AuthRequired:          {"auth_required", "H3", NeedsAuth, false},
	Forbidden:             {"forbidden", "H4", NeedsAuth, false},
	RequestTimeout:        {"request_timeout", "H5", Transient, false},
	HTTPClientError:       {"http_client_error", "H6", Permanent, false},
	UnexpectedNotModified: {"unexpected_not_modified", "H8", Permanent, false},
	TooManyRedirects:      {"too_many_redirects", "R1", Permanent, false},
	RedirectLoop:          {"redirect_loop", "R2", Permanent, false},
	RedirectRejected:      {"redirect_rejected", "R3", Permanent, false},
	ContentType:           {"content_type", "C1", Permanent, false},
	EmptyBody:             {"empty_body", "C2", Permanent, false},
	Undecodable:           {"undecodable", "C3", Permanent, false},
	BodyTooLarge:          {"body_too_large", "C4", Permanent, false},
	Integrity:             {"integrity", "C5", Permanent, false},
	TargetBlocked:         {"target_blocked", "P1", Permanent, false},
	InvalidRequest:        {"invalid_request", "P2", Permanent, false},
	Deadline:              {"deadline", "P3", Transient, false},
	Cancelled:             {"cancelled", "P4", Permanent, false},
	Shutdown:              {"shutdown", "P5", Transient, false},
	Internal:              {"internal", "P6", Transient, false},
	OutOfMemory:           {"out_of_memory", "P7", Transient, false},
	StoreFailure:          {"store_failure", "P8", Transient, false},
}

// Rule is the number of a rule in docs/spec.md, such as "W2".
type Rule string

// String returns the name in lower_snake_case, such as "connect_refused". It
// returns "" for [NoClass] and unknown values.
func (c Class) String() string {
	if int(c) >= len(classes) {
		return ""
	}
	return classes[c].name
}

// Classes returns every class except [NoClass], in ascending order.
func Classes() []Class {
	all := make([]Class, 0, len(classes)-1)
	for c := NoClass + 1; int(c) < len(classes); c++ {
		all = append(all, c)
	}
	return all
}

// String returns the name in lower_snake_case, and "" for [NoFailureType].
func (f FailureType) String() string {
	switch f {
	case Transient:
		return "transient"
	case Permanent:
		return "permanent"
	case RateLimit:
		return "rate_limited"
	case NeedsAuth:
		return "needs_auth"
	}
	return ""
}

// Faults is a set of classes. The zero value is empty.
type Faults uint64

// FaultsOf returns the set of the given classes.
func FaultsOf(classes ...Class) Faults {
	var f Faults
	for _, c := range classes {
		f = f.With(c)
	}
	return f
}

// With returns f with c added. [NoClass] and unknown values add nothing.
func (f Faults) With(c Class) Faults {
	if c == NoClass || int(c) >= len(classes) {
		return f
	}
	return f | 1<<c
}

// without returns f with c removed.
func (f Faults) without(c Class) Faults { return f &^ (1 << c) }

// Has reports whether c is in the set.
func (f Faults) Has(c Class) bool { return f&(1<<c) != 0 }

// first returns the first class of order that is in the set, or NoClass.
func (f Faults) first(order []Class) Class {
	for _, c := range order {
		if f.Has(c) {
			return c
		}
	}
	return NoClass
}
