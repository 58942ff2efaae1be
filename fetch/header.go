package fetch

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"

	"fetchd/classify"
	"fetchd/fetch/coding"
)

// forbiddenHeaders are the fields that a caller may not set, by canonical name. They frame the
// message, belong to the connection or to a proxy, or are set by the service.
var forbiddenHeaders = map[string]string{
	"Connection":        "belongs to the connection: remove it",
	"Content-Length":    "is computed from the body: remove it",
	"Expect":            "is not supported: remove it",
	"Fetchd-Hops":       "is set by the service: remove it",
	"Forwarded":         "belongs to proxies: remove it",
	"Host":              "is computed from the URL: remove it",
	"Http2-Settings":    "belongs to the connection: remove it",
	"Idempotency-Key":   "is set by retry_policy.idempotency_key: use that field",
	"Keep-Alive":        "belongs to the connection: remove it",
	"Te":                "belongs to the connection: remove it",
	"Trailer":           "belongs to the connection: remove it",
	"Transfer-Encoding": "frames the message: remove it",
	"Upgrade":           "belongs to the connection: remove it",
	"Via":               "belongs to proxies: remove it",

	// The metadata services of clouds require these, so that no browser can be tricked into
	// calling them. The same holds for this service. See metadataToken, too.
	"Metadata":                  cloudMetadata,
	"Metadata-Flavor":           cloudMetadata,
	"X-Google-Metadata-Request": cloudMetadata,
}

const cloudMetadata = "gives access to cloud metadata services: remove it"

// metadataToken is in the names with which a metadata service issues and checks tokens. Only the rest
// differs: X-aws-ec2-metadata-token-ttl-seconds, X-aliyun-ecs-metadata-token, X-Metadata-Token (Huawei),
// X-NCP-METADATA-TOKEN (Naver), Metadata-Token-Expiry-Seconds (Akamai).
const metadataToken = "Metadata-Token"

// forbiddenPrefixes are the prefixes of other forbidden names.
var forbiddenPrefixes = []string{"Proxy-", "Sec-", "X-Forwarded-"}

// HopsHeader is sent with every request. Its value is the number of fetches that led to
// the request, including this one. A service that finds it in a call to its own API
// knows that it is fetching itself. Callers cannot set it.
const HopsHeader = "Fetchd-Hops"

// CheckHeader returns what is wrong with a header field of a request, or "" if it is
// valid. The text is for people and contains no byte of the field.
//
// # Source
//
// Spec §12; RFC 9110 §5.1 and §5.5.
func CheckHeader(name, value string) string {
	if !httpguts.ValidHeaderFieldName(name) {
		return "has a name that is not a token (RFC 9110 section 5.1)"
	}
	if strings.Contains(name, "_") {
		return "has an underscore in its name, which origins may read as a hyphen"
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if remedy, ok := forbiddenHeaders[canonical]; ok {
		return remedy
	}
	if strings.Contains(canonical, metadataToken) {
		return cloudMetadata
	}
	for _, prefix := range forbiddenPrefixes {
		if strings.HasPrefix(canonical, prefix) {
			return "must not be set by callers: remove it"
		}
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return "has a value with a control character"
	}
	return ""
}

// The values of Accept-Encoding.
var noCodings, allCodings = []string{"identity"}, []string{"gzip, br, zstd"}

// acceptEncoding returns the Accept-Encoding of a request whose caller sets none (spec §2).
// It asks for no coding if the bytes are kept as sent, if the request has a Range, and for
// downloads, because an encoded body cannot be resumed.
func (r *Request) acceptEncoding() []string {
	if r.acceptsCodings() {
		return allCodings
	}
	return noCodings
}

func (r *Request) acceptsCodings() bool {
	return !r.KeepEncoding && r.Policy.Profile != classify.Download && r.Header.Get("Range") == ""
}

// decodes reports whether the service undoes content codings (spec B6).
func (r *Request) decodes() bool {
	return !r.KeepEncoding && len(r.Header["Accept-Encoding"]) == 0
}

// coding returns the content coding of a response that the service undoes, or "".
func (r *Request) coding(response http.Header) string {
	if !r.decodes() {
		return ""
	}
	return coding.Applied(response["Content-Encoding"])
}

// first returns the first value of a field. Unlike [http.Header.Get] it requires a canonical
// name, and so saves the conversion.
func first(h http.Header, name string) string {
	if lines := h[name]; len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// conditional reports whether a 304 answers the request (H7).
func conditional(h http.Header) bool {
	return first(h, "If-None-Match") != "" || first(h, "If-Modified-Since") != ""
}

// setField sets a header field of one request. The header of the hop is not changed, because
// later requests are made from it.
func setField(req *http.Request, name string, values ...string) {
	req.Header = maps.Clone(req.Header)
	req.Header[name] = values
}
