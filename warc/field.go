package warc

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Field is a named field of a head, or a line of an application/warc-fields block.
type Field struct{ Name, Value string }

// Get returns the value of the first field with that name, without regard to case, or "".
func Get(fields []Field, name string) string {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// The names of the fields that Header has.
const (
	nameType               = "WARC-Type"
	nameID                 = "WARC-Record-ID"
	nameDate               = "WARC-Date"
	nameTargetURI          = "WARC-Target-URI"
	nameContentType        = "Content-Type"
	nameContentLength      = "Content-Length"
	nameConcurrentTo       = "WARC-Concurrent-To"
	nameRefersTo           = "WARC-Refers-To"
	nameRefersToTargetURI  = "WARC-Refers-To-Target-URI"
	nameRefersToDate       = "WARC-Refers-To-Date"
	nameProfile            = "WARC-Profile"
	nameBlockDigest        = "WARC-Block-Digest"
	namePayloadDigest      = "WARC-Payload-Digest"
	nameTruncated          = "WARC-Truncated"
	nameIPAddress          = "WARC-IP-Address"
	nameProtocol           = "WARC-Protocol"
	nameCipherSuite        = "WARC-Cipher-Suite"
	nameIdentifiedType     = "WARC-Identified-Payload-Type"
	nameWarcinfoID         = "WARC-Warcinfo-ID"
	nameFilename           = "WARC-Filename"
	nameSegmentNumber      = "WARC-Segment-Number"
	nameSegmentOriginID    = "WARC-Segment-Origin-ID"
	nameSegmentTotalLength = "WARC-Segment-Total-Length"
)

// check returns an error if the field cannot be written in one line and read back the same.
func (f Field) check() error {
	if !isToken(f.Name) {
		return fmt.Errorf("%.40q is not a name of a field", f.Name)
	}
	if err := checkValue(f.Value); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

func checkValue(v string) error {
	if isPrintable(v) && !strings.HasPrefix(v, " ") && !strings.HasSuffix(v, " ") {
		return nil // nearly all values
	}
	if !utf8.ValidString(v) {
		return errors.New("the value is not UTF-8")
	}
	if strings.Trim(v, " \t") != v {
		return errors.New("the value starts or ends with a space")
	}
	if i := strings.IndexFunc(v, endsLine); i >= 0 {
		return fmt.Errorf("the value has a control character at byte %d", i)
	}
	return nil
}

// isPrintable reports whether s has nothing but printable ASCII.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// endsLine reports whether c is a control character, or separates lines for some readers: Python's
// splitlines, for example, also splits at U+0085 and U+2028.
func endsLine(c rune) bool {
	return c < ' ' || c >= 0x7f && c <= 0x9f || c == 0x2028 || c == 0x2029
}

var tokenBytes = func() (set [256]bool) {
	for c := range set {
		set[c] = c > ' ' && c < 0x7f && strings.IndexByte(`()<>@,;:\"/[]?={}`, byte(c)) < 0
	}
	return set
}()

// isToken reports whether s is a token of the standard's grammar.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}
