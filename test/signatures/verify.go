// Package signatures verifies HTTP message signatures (RFC 9421) with nothing but the standard
// library. It shares no code with the signer, so that tests compare two readings of the RFC. It is
// for tests: it does not check times, and of structured fields it reads what the tests send.
package signatures

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Message is a message as it was received.
type Message struct {
	Method, Scheme, Authority, Target string
	Status                            int
	Lines                             [][2]string // of the header, in order
	Body                              []byte
	Request                           *Message // that a response answers
}

// Parse parses a request or response of HTTP/1.1. Lines may end without a carriage return.
func Parse(raw []byte, scheme string) (*Message, error) {
	head, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		head, body, ok = bytes.Cut(raw, []byte("\n\n"))
	}
	if !ok {
		return nil, errors.New("the message has no end of its header")
	}
	lines := strings.Split(strings.ReplaceAll(string(head), "\r", ""), "\n")
	m := &Message{Scheme: scheme, Body: body}
	start := strings.Split(lines[0], " ")
	if len(start) < 3 {
		return nil, errors.New("the start line has fewer than three parts")
	}
	if strings.HasPrefix(start[0], "HTTP/") {
		m.Status, _ = strconv.Atoi(start[1])
	} else {
		m.Method, m.Target = start[0], start[1]
	}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errors.New("a line of the header has no colon")
		}
		m.Lines = append(m.Lines, [2]string{name, value})
		if strings.EqualFold(name, "host") {
			m.Authority = strings.TrimSpace(value)
		}
	}
	return m, nil
}

// Values returns the trimmed values of a field, in order.
func (m *Message) Values(name string) []string {
	var values []string
	for _, line := range m.Lines {
		if strings.EqualFold(line[0], name) {
			values = append(values, strings.Trim(line[1], " \t"))
		}
	}
	return values
}

// Members returns the members of a dictionary field by name, each as text.
func (m *Message) Members(name string) map[string]string {
	members := make(map[string]string)
	for _, part := range split(strings.Join(m.Values(name), ", "), ',') {
		part = strings.TrimSpace(part)
		end := strings.IndexAny(part, "=;")
		switch {
		case end < 0:
			members[part] = "?1"
		case part[end] == '=':
			members[part[:end]] = part[end+1:]
		default:
			members[part[:end]] = "?1" + part[end:]
		}
	}
	return members
}

// split splits text at a separator that is neither in quotes nor in parentheses.
func split(text string, sep byte) []string {
	var parts []string
	start, quoted, depth := 0, false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case !quoted && text[i] == '(':
			depth++
		case !quoted && text[i] == ')':
			depth--
		case !quoted && depth == 0 && text[i] == sep:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

// formEncoding corrects what url.QueryEscape does otherwise than the URL standard.
var formEncoding = strings.NewReplacer("+", "%20", "~", "%7E", "%2A", "*")

var spaces = regexp.MustCompile(` +`)

// Base returns the signature base for the value of a member of Signature-Input.
func (m *Message) Base(input string) (string, error) {
	list, ok := strings.CutPrefix(input, "(")
	end := strings.LastIndex(list, ")")
	if !ok || end < 0 {
		return "", errors.New("the input is not a list")
	}
	var base strings.Builder
	for _, id := range split(list[:end], ' ') {
		if id == "" {
			continue
		}
		value, err := m.value(id)
		if err != nil {
			return "", fmt.Errorf("%s: %w", id, err)
		}
		base.WriteString(id + ": " + value + "\n")
	}
	return base.String() + `"@signature-params": ` + input, nil
}

func (m *Message) value(id string) (string, error) {
	parts := split(id, ';')
	name := strings.Trim(parts[0], `"`)
	params := make(map[string]string)
	for _, p := range parts[1:] {
		k, v, _ := strings.Cut(p, "=")
		params[k] = strings.Trim(v, `"`)
	}
	if _, ok := params["req"]; ok {
		if m = m.Request; m == nil {
			return "", errors.New("the message has no request")
		}
	}
	if strings.HasPrefix(name, "@") {
		return m.derived(name, params["name"])
	}
	values := m.Values(name)
	if len(values) == 0 {
		return "", errors.New("the message does not have it")
	}
	_, bs := params["bs"]
	_, sf := params["sf"]
	switch key, ok := params["key"]; {
	case bs:
		for i, v := range values {
			values[i] = ":" + base64.StdEncoding.EncodeToString([]byte(v)) + ":"
		}
	case ok:
		member, found := m.Members(name)[key]
		if !found {
			return "", errors.New("the dictionary does not have this key")
		}
		return spaces.ReplaceAllString(member, " "), nil
	case sf:
		parts := split(strings.Join(values, ", "), ',')
		for i, p := range parts {
			parts[i] = spaces.ReplaceAllString(strings.TrimSpace(p), " ")
		}
		return strings.Join(parts, ", "), nil
	}
	return strings.Join(values, ", "), nil
}

func (m *Message) derived(name, param string) (string, error) {
	path, query, _ := strings.Cut(m.Target, "?")
	authority := strings.ToLower(m.Authority)
	authority = strings.TrimSuffix(authority, map[string]string{"https": ":443", "http": ":80"}[m.Scheme])
	switch name {
	case "@method":
		return m.Method, nil
	case "@authority":
		return authority, nil
	case "@scheme":
		return m.Scheme, nil
	case "@target-uri":
		return m.Scheme + "://" + authority + m.Target, nil
	case "@request-target":
		return m.Target, nil
	case "@path":
		return path, nil
	case "@query":
		return "?" + query, nil
	case "@status":
		return strconv.Itoa(m.Status), nil
	case "@query-param":
		values, err := url.ParseQuery(query)
		want, _ := url.QueryUnescape(param)
		if len(values[want]) != 1 {
			return "", fmt.Errorf("the query has it %d times: %w", len(values[want]), err)
		}
		return formEncoding.Replace(url.QueryEscape(values[want][0])), nil
	}
	return "", errors.New("it is unknown")
}

// Verify verifies a signature by its label, and the Content-Digest if the signature covers it. The
// type of the key says which algorithm it is for; []byte is for HMAC.
func (m *Message) Verify(label string, key any) error {
	input := m.Members("signature-input")[label]
	base, err := m.Base(input)
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(strings.Trim(m.Members("signature")[label], ":"))
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	if strings.Contains(input, `"content-digest"`) {
		for name, value := range m.Members("content-digest") {
			sum := sha256.Sum256(m.Body)
			want := sum[:]
			if name == "sha-512" {
				long := sha512.Sum512(m.Body)
				want = long[:]
			}
			if value != ":"+base64.StdEncoding.EncodeToString(want)+":" {
				return errors.New("the Content-Digest is not of the body")
			}
		}
	}
	if !valid(key, []byte(base), signature) {
		return errors.New("the signature is wrong")
	}
	return nil
}

func valid(key any, base, signature []byte) bool {
	sum := sha256.Sum256(base)
	switch k := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(k, base, signature)
	case *ecdsa.PublicKey:
		return len(signature) == 64 && ecdsa.Verify(k, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	case *rsa.PublicKey:
		long := sha512.Sum512(base)
		return rsa.VerifyPSS(k, crypto.SHA512, long[:], signature, &rsa.PSSOptions{SaltLength: 64}) == nil
	case []byte:
		mac := hmac.New(sha256.New, k)
		mac.Write(base)
		return hmac.Equal(mac.Sum(nil), signature)
	}
	return false
}
