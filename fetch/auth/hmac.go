package auth

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // old interfaces require it, and HMAC does not need collision resistance
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"fetchd/fetch/signing"
)

// HMAC configures a provider that signs requests with a key that it shares with the origin (RFC 2104).
//
// Signs and the values of Fields are texts with names in braces, which are replaced:
//
//   - {id}: the ID of the fetch, the same for all its transmissions,
//   - {timestamp}: the time of the transmission, in seconds since 1970,
//   - {method}, {target} and {body}, in Signs only: the method, the path with the query, and the body,
//   - {signature}, in Fields only.
type HMAC struct {
	// KeyFile is the path of a file with the key, of at most 16 KiB. The key has at least 16 bytes.
	// It is read again when it changes (checked once a second) and when an origin rejects a
	// signature (at most once a second).
	KeyFile string `yaml:"key-file"`
	// KeyEncoding is "raw", "base64", or "whsec" for the form of Standard Webhooks: base64
	// after "whsec_". Blanks around the key are ignored. Empty means raw.
	KeyEncoding string `yaml:"key-encoding"`
	// Algorithm is "sha256", "sha512" or "sha1". Empty means sha256.
	Algorithm string `yaml:"algorithm"`
	// Signs is the text to sign. Empty means "{body}".
	Signs string `yaml:"signs"`
	// Encoding of the signature is "hex" or "base64". Empty means hex.
	Encoding string `yaml:"encoding"`
	// Fields are the header fields to add, by name. One of them must contain {signature}, and
	// each of {id} and {timestamp} that is signed must be in one.
	Fields map[string]string `yaml:"fields"`
}

// hmacKey signs as configured in an [HMAC].
type hmacKey struct {
	key    *keyFile[Secret]
	hash   func() hash.Hash
	encode func([]byte) string
	signs  template
	names  []string // of the fields, sorted
	values []template
}

var (
	keyEncodings = map[string]func(string) (Secret, error){"raw": rawKey, "base64": base64Key, "whsec": webhookKey}
	hmacHashes   = map[string]func() hash.Hash{"sha256": sha256.New, "sha512": sha512.New, "sha1": sha1.New}
	encodings    = map[string]func([]byte) string{"hex": hex.EncodeToString, "base64": base64.StdEncoding.EncodeToString}
)

func (c *HMAC) signer() (*hmacKey, error) {
	k := new(hmacKey)
	parse, err := oneOf(keyEncodings, "key encoding", cmp.Or(c.KeyEncoding, "raw"))
	if err != nil {
		return nil, err
	}
	if k.hash, err = oneOf(hmacHashes, "algorithm", cmp.Or(c.Algorithm, "sha256")); err != nil {
		return nil, err
	}
	if k.encode, err = oneOf(encodings, "encoding", cmp.Or(c.Encoding, "hex")); err != nil {
		return nil, err
	}
	if k.signs, err = parseTemplate(cmp.Or(c.Signs, "{body}"), "id", "timestamp", "method", "target", "body"); err != nil {
		return nil, fmt.Errorf("auth: hmac: signs: %w", err)
	}
	if err := k.fields(c.Fields); err != nil {
		return nil, err
	}
	if c.KeyFile == "" {
		return nil, errors.New("auth: hmac: key-file: is missing: give the path of a file with the key that you share with the origin")
	}
	k.key, err = newKeyFile(c.KeyFile, "hmac: key-file", parse)
	return k, err
}

// fields parses the fields to add.
func (k *hmacKey) fields(of map[string]string) error {
	sent := make(map[string]bool)
	for _, raw := range slices.Sorted(maps.Keys(of)) {
		name := textproto.CanonicalMIMEHeaderKey(raw)
		if !mayAdd(name) || slices.Contains(k.names, name) {
			return fmt.Errorf("auth: hmac: fields: %q: is no name of a field, is set by the service, or occurs twice", raw)
		}
		value, err := parseTemplate(of[raw], "id", "timestamp", "signature")
		if err == nil && !httpguts.ValidHeaderFieldValue(of[raw]) {
			err = errors.New("contains a control character")
		}
		if err != nil {
			return fmt.Errorf("auth: hmac: fields: %s: %w", name, err)
		}
		k.names, k.values = append(k.names, name), append(k.values, value)
		for _, p := range value {
			sent[p.name] = true
		}
	}
	if !sent["signature"] {
		return errors.New("auth: hmac: no field contains {signature}: give for example X-Signature: \"{signature}\"")
	}
	for _, p := range k.signs {
		if (p.name == "id" || p.name == "timestamp") && !sent[p.name] {
			return fmt.Errorf("auth: hmac: {%s} is signed but not sent: add it to a field, or the origin cannot check the signature", p.name)
		}
	}
	return nil
}

func (k *hmacKey) refresh() error { return k.key.refresh() }

func (k *hmacKey) sign(m *signing.Message) ([]signing.Field, error) {
	values := map[string]string{"id": m.ID, "timestamp": strconv.FormatInt(m.Time.Unix(), 10), "method": m.Method, "target": m.Target}
	mac := hmac.New(k.hash, []byte(k.key.current()))
	for _, p := range k.signs {
		if p.name == "body" {
			_, _ = mac.Write(m.Body)
			continue
		}
		if p.name == "id" && m.ID == "" {
			return nil, errors.New("auth: hmac: {id} is signed, and the fetch has no ID")
		}
		_, _ = io.WriteString(mac, p.text+values[p.name])
	}
	values["signature"] = k.encode(mac.Sum(nil))
	fields := make([]signing.Field, len(k.names))
	for i, name := range k.names {
		var value strings.Builder
		for _, p := range k.values[i] {
			value.WriteString(p.text + values[p.name])
		}
		fields[i] = signing.Field{Name: name, Value: value.String()}
	}
	return fields, nil
}

// template is a text with names to replace.
type template []part

// part is a text, or a name.
type part struct{ text, name string }

// parseTemplate parses a text in which the names may occur in braces.
func parseTemplate(text string, names ...string) (template, error) {
	var t template
	for text != "" {
		plain, rest, braced := strings.Cut(text, "{")
		if plain != "" {
			t = append(t, part{text: plain})
		}
		if strings.Contains(plain, "}") {
			return nil, errors.New("has a } without a {")
		}
		if !braced {
			break
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok || !slices.Contains(names, name) {
			return nil, fmt.Errorf("{%.20s} is none of {%s}", name, strings.Join(names, "}, {"))
		}
		t, text = append(t, part{name: name}), after
	}
	return t, nil
}

func rawKey(text string) (Secret, error) { return longEnough(strings.TrimSpace(text)) }

func base64Key(text string) (Secret, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", errors.New("auth: hmac: the key is not base64 (RFC 4648 section 4)")
	}
	return longEnough(string(key))
}

func webhookKey(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), "whsec_")
	if !ok {
		return "", errors.New("auth: hmac: the key does not start with whsec_")
	}
	return base64Key(encoded)
}

// minKey is the minimum size of a key in bytes. Whoever sees a signature can try shorter ones.
const minKey = 16

func longEnough(key string) (Secret, error) {
	if len(key) < minKey {
		return "", fmt.Errorf("auth: hmac: the key has %d bytes, and the minimum is %d: agree on a longer one with the origin, such as 32 random bytes", len(key), minKey)
	}
	return Secret(key), nil
}

// oneOf returns the value of a name, or an error that lists the names.
func oneOf[V any](values map[string]V, what, name string) (V, error) {
	v, ok := values[name]
	if !ok {
		return v, fmt.Errorf("auth: %s %.40q: give one of %s", what, name, strings.Join(slices.Sorted(maps.Keys(values)), ", "))
	}
	return v, nil
}
