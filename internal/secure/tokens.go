package secure

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Prefix is the start of every token that [NewToken] makes, so that secret scanners can recognize a
// leaked token.
const Prefix = "fetchd_"

const (
	tokenBytes   = 32
	maxNameBytes = 64
)

// Tokens holds the callers of a token file.
type Tokens struct {
	entries []entry
	names   []string          // in the order of the file
	read    [sha256.Size]byte // digest of the file
}

// entry is a token of a caller, which may have several. max is 0 if the caller has no separate limit.
type entry struct {
	name      string
	sum       [sha256.Size]byte
	max, line int
}

// NewToken returns a new token and its line for a token file. The line holds only a hash of the
// token.
func NewToken(name string) (token, line string, err error) {
	if err := CheckName(name); err != nil {
		return "", "", err
	}
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // it never fails
	token = Prefix + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(token))
	return token, fmt.Sprintf(`- {name: %s, sha256: "%x"}`, strconv.Quote(name), sum), nil
}

// CheckName returns an error if a caller cannot have that name.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxNameBytes:
		return fmt.Errorf("a name must have 1 to %d bytes", maxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("a name must have printable characters only")
	case strings.TrimSpace(name) != name:
		return errors.New("a name must not start or end with a space")
	case strings.HasPrefix(name, Prefix):
		return errors.New("a name must not start with " + Prefix + ", because tokens do")
	case isAddress(name):
		return errors.New("a name must not be an address: callers without a name are identified by their address")
	}
	return nil
}

func isAddress(name string) bool {
	_, addr := netip.ParseAddr(name)
	_, prefix := netip.ParsePrefix(name)
	return addr == nil || prefix == nil
}

// ReadTokens reads a token file. An error names the file and the line, but no value, because it could
// be a token.
func ReadTokens(file string) (*Tokens, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", file, err)
	}
	return t, nil
}

// parseTokens parses a token file. Its errors continue "FILE:".
func parseTokens(text []byte) (*Tokens, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New(" contains no token: make one with fetchd token NAME")
	} else if err != nil {
		return nil, errors.New(" is not YAML: want a list of {name, sha256, max-fetches}") // the error of the parser may contain a value
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New(" contains more than one document: want a list of {name, sha256, max-fetches}")
	}
	list := doc.Content[0]
	if list.Kind != yaml.SequenceNode {
		return nil, at(list, "want a list of {name, sha256, max-fetches}")
	}
	if len(list.Content) == 0 {
		return nil, at(list, "the list is empty: make a token with fetchd token NAME")
	}
	t := &Tokens{read: sha256.Sum256(text)}
	names, sums := make(map[string]entry), make(map[[sha256.Size]byte]int)
	for _, node := range list.Content {
		e, err := parseEntry(node)
		if err != nil {
			return nil, err
		}
		switch first, taken := names[e.name]; {
		case !taken:
			t.names = append(t.names, e.name)
		case first.max != e.max:
			return nil, at(node, fmt.Sprintf("the name %q has another max-fetches on line %d: give all its lines the same", e.name, first.line))
		}
		if line, taken := sums[e.sum]; taken {
			return nil, at(node, fmt.Sprintf("the sha256 is the same as on line %d: give each line its own token", line))
		}
		names[e.name], sums[e.sum] = e, e.line
		t.entries = append(t.entries, e)
	}
	return t, nil
}

func parseEntry(node *yaml.Node) (entry, error) {
	e := entry{line: node.Line}
	if node.Kind != yaml.MappingNode {
		return e, at(node, "want {name, sha256, max-fetches}")
	}
	seen := make(map[string]bool)
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if seen[key.Value] {
			return e, at(key, "a key appears twice: want name, sha256, max-fetches once each")
		}
		seen[key.Value] = true
		var err error
		switch key.Value {
		case "name":
			e.name = value.Value
			if err = CheckName(e.name); value.Kind != yaml.ScalarNode || value.Tag != "!!str" {
				err = errors.New("want text: put it in quotes")
			}
		case "sha256":
			var sum []byte
			sum, err = hex.DecodeString(value.Value)
			if copy(e.sum[:], sum) != len(e.sum) || err != nil || len(sum) != len(e.sum) {
				err = fmt.Errorf("want the SHA-256 of the token, %d hexadecimal digits: fetchd token NAME prints it", 2*len(e.sum))
			}
		case "max-fetches":
			if e.max, err = strconv.Atoi(value.Value); err != nil || e.max <= 0 {
				err = errors.New("want a positive whole number, or leave the key out")
			}
		default:
			return e, at(key, "an unknown key: want name, sha256, max-fetches")
		}
		if err != nil {
			return e, at(value, fmt.Sprintf("%s: %v", key.Value, err))
		}
	}
	for _, key := range []string{"name", "sha256"} {
		if !seen[key] {
			return e, at(node, key+" is missing: fetchd token NAME prints the line")
		}
	}
	return e, nil
}

func at(node *yaml.Node, text string) error { return fmt.Errorf("%d: %s", node.Line, text) }

// Limits returns the maximum of fetches in flight, for each caller that has its own limit.
func (t *Tokens) Limits() map[string]int {
	limits := make(map[string]int)
	for _, e := range t.entries {
		if e.max > 0 {
			limits[e.name] = e.max
		}
	}
	return limits
}

// Names returns the names of the callers, in the order of the file.
func (t *Tokens) Names() []string { return slices.Clone(t.names) }

// Same reports whether both were read from the same bytes.
func (t *Tokens) Same(other *Tokens) bool { return t.read == other.read }

// owner returns the caller of a token. It compares every entry in constant time, so that its duration
// reveals nothing about the entries.
func (t *Tokens) owner(token string) (name string, known bool) {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range t.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], t.entries[i].sum[:]), i, found)
	}
	if found < 0 {
		return "", false
	}
	return t.entries[found].name, true
}
