package httpsig

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"fetchd/fetch/signing"
)

// The resource with the public keys, of the draft that [WebBotAuth] names.
const (
	DirectoryPath = "/.well-known/http-message-signatures-directory"
	DirectoryType = "application/http-message-signatures-directory+json"

	directoryTag = "http-message-signatures-directory"
)

// Directory returns the body of the resource with the public keys of signers: a JSON Web Key
// Set. It has the keys that are not valid yet, so that verifiers know them in time, but not
// those that have expired. A key that occurs twice is listed once.
func Directory(keys []*Key, at time.Time) ([]byte, error) {
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, k := range listed(keys, at) {
		set.Keys = append(set.Keys, k.published())
	}
	raw, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encode the directory: %w", err)
	}
	return raw, nil
}

// listed returns the keys that a directory has.
func listed(keys []*Key, at time.Time) []*Key {
	var list []*Key
	for _, k := range keys {
		if k.private != nil && !k.expired(at) && !slices.ContainsFunc(list, func(o *Key) bool { return o.thumbprint == k.thumbprint }) {
			list = append(list, k)
		}
	}
	return list
}

// SignDirectory returns the fields of a response with the body that Directory returned: its
// Content-Digest, and a signature by each key. They prove that whoever serves the keys at the
// authority has them. So authority must be configured, and never be that of a request: another
// site could otherwise have itself signed.
func SignDirectory(keys []*Key, body []byte, authority string, at time.Time, lifetime time.Duration) ([]signing.Field, error) {
	m := &message{Message: &signing.Message{URL: &url.URL{Scheme: "https"}, Authority: authority}, added: []signing.Field{{Name: "Content-Digest", Value: digest(body)}}}
	components := []Component{{id: `"@authority";req`, name: "@authority"}, field("content-digest")}
	var inputs, signatures []string
	for i, k := range listed(keys, at) {
		p := fmt.Sprintf(`;created=%d;expires=%d;keyid="%s";tag="%s"`, at.Unix(), at.Add(lifetime).Unix(), k.thumbprint, directoryTag)
		text, input, err := base(components, p, m.value)
		if err != nil {
			return nil, err
		}
		fields, err := attach(nil, fmt.Sprintf("binding%d", i), k, text, input)
		if err != nil {
			return nil, err
		}
		inputs, signatures = append(inputs, fields[0].Value), append(signatures, fields[1].Value)
	}
	if len(inputs) == 0 {
		return m.added, nil
	}
	return append(m.added, signing.Field{Name: "Signature-Input", Value: strings.Join(inputs, ", ")},
		signing.Field{Name: "Signature", Value: strings.Join(signatures, ", ")}), nil
}
