package archive

import (
	"crypto/sha1"
	"net/netip"
	"strings"
	"time"

	"fetchd/warc"
)

// Exchange describes a request and its response.
type Exchange struct {
	URL, Method string
	Date        time.Time // when the exchange began
	Address     netip.Addr
	// Protocol and TLS are such as "HTTP/1.1" and "TLS 1.3". TLS is empty without TLS.
	Protocol, TLS string
	// Redact are request fields that the service added, such as Authorization.
	Redact []string
	// RedactResponse are fields of the response that an egress proxy added, such as Via.
	RedactResponse []string
	// RequestLength is the length of the body of the request.
	RequestLength int64
	// Whole reports whether the response was read to its end.
	Whole bool
	// Length is the length of the body, as its head says, or negative.
	Length int64
	// Chunked reports whether the body is sent in chunks. Bodyless reports whether there is none,
	// whatever the head says: to HEAD, and with 204 and 304.
	Chunked, Bodyless bool
	// Truncated is the reason if the response is not whole.
	Truncated warc.Truncated
	// Metadata are the fields of a metadata record that is written with the response, if there are some.
	// If Referer is redacted, those of MetadataURLs are left out.
	Metadata []warc.Field
	// Earlier is nil if the caller knows no earlier response.
	Earlier *Earlier
}

// Earlier is the record of an earlier response. A response of another URL is not a revisit of it,
// because callers name any URL.
type Earlier struct {
	ID, URL       string
	Date          time.Time
	PayloadDigest warc.Digest // empty: only 304 is a revisit
}

// Record says where a record is.
type Record struct {
	Type           warc.Type
	ID             string
	File           string // the name that the file has when it is whole
	Offset, Length int64
	Date           time.Time
	PayloadDigest  warc.Digest
}

// emptyPayload is the digest of a payload without a byte.
var emptyPayload = warc.NewDigest(warc.SHA1, sha1.New().Sum(nil))

// MetadataURLs are the fields of metadata records that have the URL of another page.
var MetadataURLs = []string{"via", "requisiteOf"}

// redactedField is the field of a record that has the names of redacted fields.
const redactedField = "Fetchd-Redacted"

// header returns the fields that both records of the exchange have.
func (e *Exchange) header() warc.Header {
	h := warc.Header{TargetURI: warc.EscapeURI(e.URL), Date: e.Date.UTC().Truncate(time.Microsecond), IPAddress: e.Address.WithZone("")}
	for _, p := range []string{e.Protocol, strings.Replace(e.TLS, "TLS ", "tls/", 1)} {
		if p != "" {
			h.Protocol = append(h.Protocol, strings.ToLower(p))
		}
	}
	return h
}

// sameURL reports whether two URLs that package urls has parsed are equal, without their fragments.
func sameURL(a, b string) bool {
	a, _, _ = strings.Cut(a, "#")
	b, _, _ = strings.Cut(b, "#")
	return a == b
}

// revisit changes the header of a response to that of a revisit of e.Earlier if it is one, and
// reports whether it did.
func (e *Exchange) revisit(h *warc.Header, m *message) bool {
	if e.Earlier == nil || !m.complete || !sameURL(e.URL, e.Earlier.URL) {
		return false
	}
	switch {
	case m.status == 304:
		h.Profile = warc.ServerNotModified
	case m.status/100 == 2 && m.whole && h.PayloadDigest != "" && h.PayloadDigest != emptyPayload && e.Earlier.PayloadDigest.Equal(h.PayloadDigest):
		h.Profile, h.Truncated = warc.IdenticalPayloadDigest, warc.TruncatedLength
	default:
		return false
	}
	h.Type, h.RefersTo, h.RefersToDate = warc.Revisit, e.Earlier.ID, e.Earlier.Date
	h.RefersToTargetURI = warc.EscapeURI(e.Earlier.URL)
	return true
}
