package httpsig

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dunglas/httpsfv"

	"fetchd/fetch/signing"
)

// errAbsent is returned for a field that the message does not have.
var errAbsent = errors.New("the request does not have it")

// message is a request with the fields that the signer adds.
type message struct {
	*signing.Message
	added []signing.Field
}

// adds reports whether the signer adds a field.
func (m *message) adds(name string) bool {
	return slices.ContainsFunc(m.added, func(f signing.Field) bool { return strings.EqualFold(f.Name, name) })
}

// values returns the values of a field, in order.
func (m *message) values(name string) []string {
	for _, f := range m.added {
		if strings.EqualFold(f.Name, name) {
			return []string{f.Value}
		}
	}
	return m.Header[textproto.CanonicalMIMEHeaderKey(name)]
}

// value returns the value of a component for the signature base.
func (m *message) value(c Component) (string, error) {
	path, query, has := strings.Cut(m.Target, "?")
	path = cmp.Or(path, "/")
	switch c.name {
	case "@method":
		return m.Method, nil
	case "@target-uri":
		uri := m.URL.Scheme + "://" + m.authority() + path
		if has {
			uri += "?" + query
		}
		return uri, nil
	case "@authority":
		return m.authority(), nil
	case "@scheme":
		return m.URL.Scheme, nil
	case "@request-target":
		return m.Target, nil
	case "@path":
		return path, nil
	case "@query":
		return "?" + query, nil
	case "@query-param":
		return queryParam(query, c.query)
	}
	values := m.values(c.name)
	if m.adds(c.name) && c.key != "" { // it has one member, in its canonical form
		if v, ok := strings.CutPrefix(values[0], c.key+"="); ok {
			return v, nil
		}
	}
	return fieldValue(c, values)
}

// authority returns the authority in lower case, without the scheme's default port.
func (m *message) authority() string {
	a := strings.ToLower(m.Authority)
	switch m.URL.Scheme {
	case "https":
		a = strings.TrimSuffix(a, ":443")
	case "http":
		a = strings.TrimSuffix(a, ":80")
	}
	return a
}

// fieldValue returns the value of a field (RFC 9421 section 2.1).
func fieldValue(c Component, values []string) (string, error) {
	if len(values) == 0 {
		return "", errAbsent
	}
	trimmed := make([]string, len(values))
	for i, v := range values {
		trimmed[i] = strings.Trim(v, " \t")
	}
	var sf httpsfv.StructuredFieldValue
	var err error
	switch {
	case c.bs:
		var list httpsfv.List
		for _, v := range trimmed {
			list = append(list, httpsfv.NewItem([]byte(v)))
		}
		sf = list
	case c.key != "":
		var d *httpsfv.Dictionary
		if d, err = httpsfv.UnmarshalDictionary(trimmed); err != nil {
			break
		}
		member, ok := d.Get(c.key)
		if !ok {
			return "", errors.New("the dictionary does not have this key")
		}
		sf, _ = member.(httpsfv.StructuredFieldValue)
	case c.sf && slices.Contains(lists, c.name):
		sf, err = httpsfv.UnmarshalList(trimmed)
	case c.sf:
		sf, err = httpsfv.UnmarshalDictionary(trimmed)
	default:
		return strings.Join(trimmed, ", "), nil
	}
	if err != nil {
		return "", errors.New("the field is not a valid structured field")
	}
	text, err := httpsfv.Marshal(sf)
	if err != nil {
		return "", errors.New("the field has no canonical form")
	}
	return text, nil
}

// queryParam returns the only value of a query parameter (RFC 9421 section 2.2.8). name is
// encoded.
func queryParam(query, name string) (string, error) {
	found, value := 0, ""
	for pair := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(pair, "=")
		if formEncode(formDecode(k)) == name {
			found++
			value = formDecode(v)
		}
	}
	switch {
	case found == 0:
		return "", errors.New("the request does not have this query parameter")
	case found > 1:
		return "", errors.New("the request has this query parameter more than once")
	case !utf8.ValidString(value):
		return "", errors.New("the query parameter is not UTF-8")
	}
	return formEncode(value), nil
}

// formDecode decodes a name or value of application/x-www-form-urlencoded. Percent signs
// that are no escapes stay.
func formDecode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b.WriteByte(' ')
		case s[i] == '%' && i+2 < len(s):
			if d, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(d)
				i += 2
				break
			}
			b.WriteByte('%')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// formEncode encodes a name or value of application/x-www-form-urlencoded, with %20 for a
// space. [url.QueryEscape] encodes three characters in another way.
func formEncode(s string) string { return formCharacters.Replace(url.QueryEscape(s)) }

var formCharacters = strings.NewReplacer("+", "%20", "~", "%7E", "%2A", "*")

// encoded reports whether s is what formEncode returns for some text in UTF-8.
func encoded(s string) bool {
	d := formDecode(s)
	return utf8.ValidString(d) && formEncode(d) == s
}

// base returns the signature base (RFC 9421 section 2.5), and the member of Signature-Input that it ends with.
// params are the parameters, each after a semicolon.
func base(components []Component, params string, value func(Component) (string, error)) (text, input string, err error) {
	var b strings.Builder
	b.Grow(512)
	for _, c := range components {
		v, err := value(c)
		if err == nil {
			err = checkValue(v)
		}
		if err != nil {
			return "", "", fmt.Errorf("sign %s: %w", c, err)
		}
		b.WriteString(c.id)
		b.WriteString(": ")
		b.WriteString(v)
		b.WriteByte('\n')
	}
	b.WriteString(`"@signature-params": `)
	start := b.Len()
	b.WriteByte('(')
	for i, c := range components {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(c.id)
	}
	b.WriteByte(')')
	b.WriteString(params)
	text = b.String()
	return text, text[start:], nil
}

// checkValue returns an error if a value cannot be a line of a signature base.
func checkValue(v string) error {
	for i := range len(v) {
		if v[i] < ' ' && v[i] != '\t' || v[i] >= 0x7f {
			return errors.New("its value has a character that is not printable ASCII: cover the field with the parameter bs")
		}
	}
	return nil
}

// digest returns the Content-Digest of a body (RFC 9530).
func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}
