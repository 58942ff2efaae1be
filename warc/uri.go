package warc

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// NewID returns a new identifier for a record: a random UUID as a URN.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	text := []byte("urn:uuid:00000000-0000-0000-0000-000000000000")
	at := len("urn:uuid:")
	for _, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		at += hex.Encode(text[at:], part) + len("-")
	}
	return string(text)
}

// EscapeURI percent-encodes every byte of s that a URI cannot contain: spaces, control characters,
// letters outside ASCII, and "%" that starts no escape. A URI is returned as it is.
func EscapeURI(s string) string {
	n := 0
	for i := range len(s) {
		if !uriByte(s, i) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := range len(s) {
		if uriByte(s, i) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// uriBytes has the bytes of a URI, without "%".
var uriBytes = func() (set [256]bool) {
	for c := range set {
		set[c] = c > ' ' && c < 0x7f && strings.IndexByte("%<>\"{}|\\^`", byte(c)) < 0
	}
	return set
}()

// uriByte reports whether RFC 3986 allows the byte at s[i] in a URI.
func uriByte(s string, i int) bool {
	c := s[i]
	if c == '%' {
		return i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2])
	}
	return uriBytes[c]
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// CheckURI returns an error if s is not an absolute URI, as identifiers of records and target URIs
// must be.
func CheckURI(s string) error {
	scheme, _, ok := strings.Cut(s, ":")
	if !ok || !isScheme(scheme) {
		return fmt.Errorf("%.40q has no scheme", s)
	}
	for i := range len(s) {
		if !uriByte(s, i) {
			return fmt.Errorf("byte %d, %q, must be percent-encoded in a URI", i, s[i:i+1])
		}
	}
	return nil
}

func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// unbracket removes the angle brackets around an identifier. Some WARC/1.0 files have none, and
// wget puts them around target URIs too.
func unbracket(s string) string {
	if len(s) >= 2 && s[0] == '<' && s[len(s)-1] == '>' {
		return s[1 : len(s)-1]
	}
	return s
}
