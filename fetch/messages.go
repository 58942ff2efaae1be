package fetch

import (
	"cmp"
	"fmt"
	"time"

	"fetchd/classify"
	"fetchd/fetch/coding"
	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/markdown"
	"fetchd/fetch/timers"
)

// TimeoutError reports which time limit passed.
type TimeoutError = timers.Error

// message returns what went wrong. It includes the value of a limit and who set it.
func (r *run) message(d *classify.Decision, reason string) string {
	text, req := classMessage(d.Class, reason), r.req
	switch d.Class {
	case classify.DNSNotFound:
		if req.HideForbidden {
			text += ", or has no address that this caller may reach"
		}
	case classify.ConnectionReset:
		if reason == "unrequested_data" {
			text = "the origin sent more than was requested, so the response may be the answer to an earlier request"
		}
	case classify.TargetBlocked:
		if reason == "proxy_credentials" {
			text = "the egress proxy rejects the credentials of this service, or wants some: the operator sets them in " + req.proxySetting()
		}
	case classify.ContentType:
		if reason == errNotText.Reason {
			text = "the body is no text: leave text_policy out to get its bytes"
		}
	case classify.BodyTooLarge:
		switch reason {
		case "content_length":
			text = messages[d.Class] + ": Content-Length is over " + req.bodyLimitText()
		case "max_size_bytes":
			text = messages[d.Class] + ": it is longer than " + req.bodyLimitText()
		case "text_size":
			text = fmt.Sprintf("%s: its text has more than the %d bytes that the service delivers inline, set oversize_action to get its start", messages[d.Class], MaxInlineBytes)
		}
	case classify.TooManyRedirects:
		text = "there were more redirects than " + req.limit("max_redirects", req.Policy.MaxRedirects, req.SetBy.MaxRedirects, "")
	case classify.AttemptTimeout:
		text += ": " + req.limit("attempt_timeout", req.AttemptTimeout, req.SetBy.AttemptTimeout, "--max-total-timeout")
	case classify.ResponseTimeout, classify.WriteTimeout:
		text += ": " + req.limit("header_timeout", req.HeaderTimeout, req.SetBy.HeaderTimeout, "--max-total-timeout")
	case classify.Deadline:
		return text + ": " + r.timeText()
	}
	switch d.Verdict {
	case classify.AttemptsExhausted:
		text += "; no attempt is left of " + req.limit("max_attempts", req.Policy.MaxAttempts, req.SetBy.MaxAttempts, "")
	case classify.RetryAfterTooLong:
		text += fmt.Sprintf("; Retry-After of %s is over %s", d.RetryAfter, req.limit("max_retry_after", req.Policy.MaxRetryAfter, req.SetBy.MaxRetryAfter, ""))
	case classify.NoTime:
		text += "; the wait before the next attempt is too long for " + r.timeText()
	}
	return text
}

// limit returns a field with its value and who set it. flag is the operator's flag for it.
func (r *Request) limit(field string, value any, by Setter, flag string) string {
	text := fmt.Sprintf("%s %v, ", field, value)
	switch by {
	case ByCaller:
		return text + "set by the request"
	case ByPolicy:
		return text + "the maximum of the policy of this caller"
	case ByServer:
		return text + "the server's maximum, set by its operator with " + flag
	default:
		if r.Policy.Profile == classify.Download {
			return text + "the default of profile download"
		}
		return text + "the default of profile standard"
	}
}

// proxySetting returns the setting of the credentials for the proxy.
func (r *Request) proxySetting() string {
	if r.Route != nil {
		return "the credentials-file of the egress route"
	}
	return "the URL of --egress-proxy"
}

// bodyLimitText returns the limit that a body exceeds.
func (r *Request) bodyLimitText() string {
	if r.Text != markdown.Off && (r.MaxBodyBytes > MaxTextSourceBytes || r.SetBy.MaxBodyBytes == ByService) {
		return fmt.Sprintf("the %d bytes of which the service makes a text: leave text_policy out", MaxTextSourceBytes)
	}
	if r.Delivery == Inline && (r.MaxBodyBytes > MaxInlineBytes || r.SetBy.MaxBodyBytes == ByService) {
		return fmt.Sprintf("the %d bytes that the service delivers inline: call Fetch for more, which streams the body", MaxInlineBytes)
	}
	if r.SetBy.MaxBodyBytes == ByStore {
		return fmt.Sprintf("the %d bytes that the store takes", r.MaxBodyBytes)
	}
	return r.limit("max_size_bytes", r.MaxBodyBytes, r.SetBy.MaxBodyBytes, "--max-body-bytes")
}

// timeText returns the limit of the time of the fetch.
func (r *run) timeText() string {
	limit, by := r.deadline.Sub(r.start), r.req.SetBy.TotalTimeout
	if d, ok := r.caller.Deadline(); ok && d.Equal(r.deadline) {
		by = ByCall
	}
	if by == ByCall {
		return fmt.Sprintf("the deadline of the call, set by the caller, left %s", max(limit, 0).Round(time.Millisecond))
	}
	return r.req.limit("total_timeout", limit, by, "--max-total-timeout")
}

// classMessage returns what went wrong and, if there is a remedy, what it is. It contains no text from
// the origin.
func classMessage(c classify.Class, reason string) string {
	if remedy, ok := remedies[reason]; ok {
		return messages[c] + ": " + remedy
	}
	return messages[c]
}

// policyMessage returns which rule of the policy of a fetch forbids the target.
func policyMessage(reason string, d denial) string {
	if d.rule == egress.Nothing {
		return fmt.Sprintf("the policy %q of this caller permits nothing", d.policy)
	}
	text := fmt.Sprintf("the policy %q of this caller forbids the target: %s", d.policy, policyReasons[reason])
	if detail := cmp.Or(d.rule, d.permitted); detail != "" {
		text += " (" + detail + ")"
	}
	return text
}

// policyReasons name the keys of a policy by reason.
var policyReasons = map[string]string{
	"name_denied":         "its name is in deny-names",
	"name_not_allowed":    "its name is not in allow-names, or has a meaning only inside a network that allow-addresses does not open",
	"metadata_name":       "it is the name of a service that provides credentials",
	"address_denied":      "its address is in deny-addresses",
	"address_not_allowed": "its address is not in allow-addresses, and not public or public-addresses is forbid",
	"port_not_allowed":    "its port is not in ports",
	"scheme_not_allowed":  "its scheme is not in schemes",
	"route_not_allowed":   "it no longer permits the egress route of the fetch",
}

// remedies are explanations by reason.
var remedies = map[string]string{
	"no_credential":                 "the auth provider has none, the operator must check the provider",
	"signing_failed":                "the auth provider could not sign the request, the operator must check the provider",
	refreshFailed:                   "it rejects the credential, and the auth provider has no other now, the operator must check the provider if that lasts",
	refreshedJustNow:                "it rejects a credential that is less than a second old, a later fetch gets another one",
	"port_not_allowed":              "the port is not allowed, the operator can allow it with --egress-allow-port",
	"address_not_allowed":           "the address is not public, the operator can allow it with --egress-allow-cidr",
	"name_not_allowed":              "the name has a meaning only inside a network, the operator can allow such names with --egress-allow-cidr",
	"name_denied":                   "the operator has blocked it with --egress-deny-host",
	"address_denied":                "the operator has blocked it with --egress-deny-cidr",
	"metadata_name":                 "it is the name of a service that provides credentials",
	"own_listener":                  "it is this service itself",
	"certificate_expired":           "it is expired or not yet valid",
	"certificate_wrong_name":        "it is for another name",
	"certificate_unknown_authority": "it is not signed by an authority that this server trusts",
	fault.IncompleteChain:           "it did not send the certificate of the authority that signed its own, the operator can give it with --egress-intermediates",
	fault.PlainHTTP:                 "it speaks HTTP without TLS on this port, an http URL may work",
	"unreachable":                   "there is no route to it",
	fault.NoDescriptor:              "it has as many files and sockets open as it may, the operator can raise the limit (ulimit -n) or lower --max-fetches",
	"decompression_ratio":           fmt.Sprintf("decoding makes it more than %d times as long, which is a limit of the service", coding.MaxRatio),
	"decompression_window":          fmt.Sprintf("its coding needs a window of more than %d bytes, or one that grows, which the service does not allow", coding.MaxWindowBytes),
	"unknown_content_coding":        "its content coding is not gzip, deflate, br or zstd, or it has more than two",
	"invalid_charset":               "its bytes are not valid in its charset",
	"unknown_charset":               "its charset is unknown",
	"downgrade":                     "it leads from https to http, which forbid_downgrade does not allow",
	"location_userinfo":             "its Location has a user name or password",
	"location_scheme":               "its Location is neither http nor https",
	"answer_before_request":         "the origin had answered before the request was sent",
	"http_version":                  "its status line has another version of HTTP than the connection",
	"partial_content":               "it is only a part of the whole, in a 206 response",
	"text_limit":                    "the page has more elements than the service converts to text, leave text_policy out to get its bytes",
	"unrequested_data":              fmt.Sprintf("it sent more than %d bytes for each request in flight, or %d frames to answer, that belong to no response, a limit of the service", conns.StreamBytes, conns.MaxWrites),
	"too_many_header_fields":        fmt.Sprintf("a response head or trailer has more than %d fields, a limit of the service", conns.MaxHeaderFields),
	"handshake_too_large":           fmt.Sprintf("the handshake has more than %d bytes, a limit of the service", conns.MaxHandshakeBytes),
	"proxy_answer_too_large":        "the proxy's answer to CONNECT is too large",
	"proxy_refused":                 "the egress proxy will not connect to it, the operator can allow it there",
	"proxy_bytes":                   "the proxy sent more than its answer to CONNECT",
	"store_unavailable":             "it failed several times in a row, and is tried again within seconds",
	"store_timeout":                 "it did not answer in time",
	"certificates_too_large":        fmt.Sprintf("the certificates use more than %d bytes of memory, a limit of the service", conns.MaxCertificateBytes),

	"response_head_too_large":          fmt.Sprintf("a response head or trailer has more than %d bytes, a limit of the service", conns.MaxHeadBytes),
	"too_many_informational_responses": fmt.Sprintf("more than %d 1xx responses came before the response, a limit of the service", conns.MaxInformational),
}

var messages = map[classify.Class]string{
	classify.DNSNotFound:           "the host name does not exist",
	classify.DNSFailure:            "the host name could not be looked up",
	classify.ConnectRefused:        "the connection was refused",
	classify.ConnectTimeout:        "the connection was not ready in time",
	classify.ConnectFailure:        "no connection could be made",
	classify.ConnectionReset:       "the connection broke before the response head was complete",
	classify.TLSHandshake:          "the TLS handshake failed",
	classify.TLSCertificate:        "the origin's certificate is not acceptable",
	classify.ResponseTimeout:       "the response head did not arrive in time",
	classify.WriteTimeout:          "the request could not be sent in time",
	classify.BodyInterrupted:       "the body ended early",
	classify.BodyTimeout:           "the origin stopped sending in the middle of the body",
	classify.Protocol:              "the origin does not speak HTTP, or violates the protocol",
	classify.AttemptTimeout:        "the time limit of the attempt passed",
	classify.HTTPServerError:       "the origin answered with a server error",
	classify.RateLimited:           "the origin limits the rate of requests",
	classify.AuthRequired:          "the origin requires credentials",
	classify.Forbidden:             "the origin forbids the request",
	classify.RequestTimeout:        "the origin waited too long for the request",
	classify.HTTPClientError:       "the origin refused the request",
	classify.UnexpectedNotModified: "the origin answered 304 to a request without a condition",
	classify.TooManyRedirects:      "there were more redirects than max_redirects",
	classify.RedirectLoop:          "the redirects return to a request already made",
	classify.RedirectRejected:      "the redirect leads to a URL that cannot be followed",
	classify.ContentType:           "the media type is not among those accepted",
	classify.EmptyBody:             "the body is empty",
	classify.Undecodable:           "the body cannot be decoded",
	classify.BodyTooLarge:          "the body is too large",
	classify.Integrity:             "the body does not have the expected size or digest",
	classify.TargetBlocked:         "the target is forbidden by this server's egress policy",
	classify.InvalidRequest:        "the request is malformed",
	classify.Deadline:              "the time limit of the fetch passed",
	classify.Cancelled:             "the fetch was cancelled",
	classify.Shutdown:              "the server is shutting down",
	classify.Internal:              "the server failed internally",
	classify.OutOfMemory:           "this server has no memory left for the fetch, a later one may succeed",
	classify.StoreFailure:          "a store did not take the body or the records",
}
