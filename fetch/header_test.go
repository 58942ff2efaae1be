package fetch_test

import (
	"net/textproto"
	"strings"
	"testing"

	"fetchd/fetch"
)

// forbidden are the forbidden names in canonical form, except those with a forbidden prefix.
var forbidden = []string{
	"Connection", "Content-Length", "Expect", "Forwarded", "Host", "Http2-Settings", "Idempotency-Key", "Keep-Alive",
	"Metadata", "Metadata-Flavor", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
	"X-Aws-Ec2-Metadata-Token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "X-Google-Metadata-Request",
	"X-Aliyun-Ecs-Metadata-Token", "X-Aliyun-Ecs-Metadata-Token-Ttl-Seconds", "X-Metadata-Token", "X-Metadata-Token-Ttl-Seconds",
	"X-Ncp-Metadata-Token", "X-Ncp-Metadata-Token-Ttl-Seconds", "Metadata-Token", "Metadata-Token-Expiry-Seconds",
	"Proxy-Authorization", "Proxy-Connection", "Proxy-", "Sec-Fetch-Site", "Sec-Websocket-Key", "Sec-", "X-Forwarded-For",
	"X-Forwarded-Host", "X-Forwarded-",
}

// mixed alternates upper and lower case.
func mixed(name string) string {
	b := []byte(strings.ToLower(name))
	for i := 0; i < len(b); i += 2 {
		b[i] = strings.ToUpper(string(b[i]))[0]
	}
	return string(b)
}

// TestForbiddenHeaders checks forbidden names in every equivalent spelling.
func TestForbiddenHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range forbidden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name), mixed(name)} {
				if fetch.CheckHeader(spelling, "v") == "" {
					t.Errorf("CheckHeader(%q) lets it pass", spelling)
				}
			}
		})
	}
}

// TestAllowedHeaders checks names that resemble forbidden ones.
func TestAllowedHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Authorization", "Content-Encoding", "Content-Type", "Cookie", "Date", "If-None-Match",
		"Origin", "Range", "Referer", "User-Agent",
		"Connect", "Connections", "Content-Len", "X-Content-Length", "Expect-Ct", "Forward", "Forwarded-For", "Hosting", "X-Host",
		"Http2", "Idempotency", "Idempotency-Keys", "X-Idempotency-Key", "Keep", "Metadata-Tok", "Token-Metadata", "X-Metadata", "X-Metadata-Flavor", "Prox", "Proxy", "Proxying",
		"Sec", "Second", "Security", "X-Sec-Fetch", "T", "Tea", "X-Te", "Trailers", "Transfer", "Upgrade-Insecure-Requests", "Viable",
		"X-Forward", "X-Forwarded", "X-Forwardedfor", "X-Api-Key", "X-Aws-Ec2-Metadata", "X-Idempotency",
		"!#$%&'*+-.^`|~", "0", "a.b",
	} {
		for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name), mixed(name)} {
			if got := fetch.CheckHeader(spelling, "v"); got != "" {
				t.Errorf("CheckHeader(%q) = %q, want nothing", spelling, got)
			}
		}
	}
}

// TestHeaderNames checks names that are not tokens, or that an origin may take for another name.
func TestHeaderNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, header string }{
		{"empty", ""},
		{"a space inside", "X Y"},
		{"a trailing space", "Content-Length "},
		{"a tab", "X\tY"},
		{"a colon", "X:Y"},
		{"a leading colon, as in HTTP/2", ":authority"},
		{"a line feed", "X\nHost"},
		{"DEL", "X\x7f"},
		{"UTF-8", "Café"},
		{"a letter that folds to ASCII", "\u212aeep-Alive"},
		{"an underscore", "X_Y"},
		{"an underscore for the hyphen", "Content_Length"},
		{"an underscore in front", "_Host"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if fetch.CheckHeader(row.header, "v") == "" {
				t.Errorf("CheckHeader(%q) lets it pass", row.header)
			}
		})
	}
}

// TestHeaderValues checks which bytes a value may have (RFC 9110 §5.5). The name makes no
// difference.
func TestHeaderValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, value string
		ok          bool
	}{
		{"a word", "v", true},
		{"empty", "", true},
		{"a tab", "a\tb", true},
		{"spaces", " a  b ", true},
		{"Latin-1", "caf\xe9", true},
		{"UTF-8", "café", true},
		{"every other sign", `!"#$%&'()*+,-./:;<=>?@[\]^_{|}~` + "`", true},
		{"a carriage return", "a\rb", false},
		{"a line feed", "a\nb", false},
		{"NUL", "a\x00b", false},
		{"DEL", "a\x7fb", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := fetch.CheckHeader("X-Test", row.value); (got == "") != row.ok {
				t.Errorf("CheckHeader(X-Test, %q) = %q, want ok %t", row.value, got, row.ok)
			}
		})
	}
}

// TestRemediesHoldNoBytes checks that a remedy contains no byte of the header.
func TestRemediesHoldNoBytes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, value string }{
		{"X-Secret-Name\n", "v"}, {"X_Secret-Name", "v"}, {"X-Forwarded-Secret", "v"}, {"X-Test", "secret\n"}, {"Keep-Alive", "secret"},
	} {
		remedy := fetch.CheckHeader(row.name, row.value)
		if remedy == "" || strings.Contains(strings.ToLower(remedy), "secret") {
			t.Errorf("CheckHeader(%q, %q) = %q, want a remedy without what was sent", row.name, row.value, remedy)
		}
	}
}

// TestForbiddenNamesAreCanonical checks the list above, which would test nothing otherwise.
func TestForbiddenNamesAreCanonical(t *testing.T) {
	t.Parallel()
	for _, name := range forbidden {
		if got := textproto.CanonicalMIMEHeaderKey(name); got != name {
			t.Errorf("%s is written %s", name, got)
		}
	}
}
