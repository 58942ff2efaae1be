package secure_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/internal/secure"
	"fetchd/test/must"
)

// read writes a token file and reads it.
func read(t *testing.T, text string) (*secure.Tokens, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return secure.ReadTokens(file)
}

func sum(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

// TestReadTokens checks valid token files, and the callers of their tokens.
func TestReadTokens(t *testing.T) {
	tokens, err := read(t, `# callers
- {name: first, sha256: `+sum("a")+`}
- name: second
  sha256: "`+strings.ToUpper(sum("b"))+`"
  max-fetches: 5
- {name: "third one, ü", sha256: `+sum("c")+`, max-fetches: 1}
- {name: second, sha256: `+sum("b2")+`, max-fetches: 5}
`)
	must.Succeed(t, err)
	if diff := cmp.Diff(map[string]int{"second": 5, "third one, ü": 1}, tokens.Limits()); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	callers := &secure.Callers{Tokens: tokens}
	if diff := cmp.Diff([]string{"first", "second", "third one, ü"}, callers.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for token, want := range map[string]string{"a": "first", "b": "second", "b2": "second", "c": "third one, ü", "": "", "d": "", "first": "", sum("a"): "", "a ": ""} {
		got, err := callers.Name(token, nil)
		if got != want || (err == nil) != (want != "") || err != nil && err != map[bool]error{true: secure.ErrToken, false: secure.ErrUnknownToken}[token == ""] { //nolint:errorlint // the very text that callers are told
			t.Errorf("token %q: %q, %v, want %q", token, got, err, want)
		}
	}
}

// TestWrongTokens checks that an error names the file, the line and the remedy, but never a value
// that might be a token.
func TestWrongTokens(t *testing.T) {
	const secret = "fetchd_TopSecret"
	a, b := sum("a"), sum("b")
	for _, row := range []struct{ name, text, want string }{
		{"empty", "", "tokens.yaml: contains no token"},
		{"a comment", "# nothing\n", "tokens.yaml: contains no token"},
		{"an empty list", "[]\n", "tokens.yaml:1: the list is empty"},
		{"no YAML", "- {name: " + secret, "tokens.yaml: is not YAML"},
		{"an anchor that is not there", "- *" + secret + "\n", "tokens.yaml: is not YAML"},
		{"no list", "name: a\n", "tokens.yaml:1: want a list of {name, sha256, max-fetches}"},
		{"two documents", "- {name: a, sha256: " + a + "}\n---\n- {name: b, sha256: " + b + "}\n", "more than one document"},
		{"a bare token", "- {name: a, sha256: " + a + "}\n- " + secret + "\n", "tokens.yaml:2: want {name, sha256, max-fetches}"},
		{"a token for its hash", "- {name: a, sha256: " + secret + "}\n", "tokens.yaml:1: sha256: want the SHA-256 of the token, 64 hexadecimal digits"},
		{"a token for a key", "- {name: a, " + secret + ": x}\n", "tokens.yaml:1: an unknown key"},
		{"a token for a name", "- {name: " + secret + ", sha256: " + a + "}\n", "tokens.yaml:1: name: a name must not start with fetchd_"},
		{"a token for a limit", "- {name: a, sha256: " + a + ", max-fetches: " + secret + "}\n", "max-fetches: want a positive whole number"},
		{"a hash that is short", "- {name: a, sha256: " + a[2:] + "}\n", "sha256: want"},
		{"a hash that is long", "- {name: a, sha256: " + a + "00}\n", "sha256: want"},
		{"no hash", "- {name: a}\n", "tokens.yaml:1: sha256 is missing"},
		{"no name", "- {sha256: " + a + "}\n", "tokens.yaml:1: name is missing"},
		{"an empty name", "- {name: '', sha256: " + a + "}\n", "name: a name must have 1 to 64 bytes"},
		{"a long name", "- {name: " + strings.Repeat("n", 65) + ", sha256: " + a + "}\n", "name: a name must have 1 to 64 bytes"},
		{"a name with a line break", "- {name: \"a\\nb\", sha256: " + a + "}\n", "name: a name must have printable characters only"},
		{"a name that is a number", "- {name: 5, sha256: " + a + "}\n", "name: want text: put it in quotes"},
		{"the same name with another limit", "- {name: a, sha256: " + a + ", max-fetches: 5}\n- {name: b, sha256: " + b + "}\n- {name: a, sha256: " + sum("c") + "}\n", `tokens.yaml:3: the name "a" has another max-fetches on line 1: give all its lines the same`},
		{"the same token", "- {name: a, sha256: " + a + "}\n- {name: b, sha256: " + a + "}\n", "tokens.yaml:2: the sha256 is the same as on line 1"},
		{"a key given twice", "- name: a\n  sha256: " + a + "\n  name: b\n", "tokens.yaml:3: a key appears twice"},
		{"a limit of nothing", "- {name: a, sha256: " + a + ", max-fetches: 0}\n", "max-fetches: want a positive whole number"},
		{"a negative limit", "- {name: a, sha256: " + a + ", max-fetches: -1}\n", "max-fetches: want a positive whole number"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := read(t, row.text)
			if err == nil || !strings.Contains(fmt.Sprint(err), row.want) || strings.Contains(fmt.Sprint(err), "TopSecret") {
				t.Errorf("%q: error %v, want %q in it and no token", row.text, err, row.want)
			}
		})
	}
}

// TestNewToken checks that every token is new, and that its line admits it.
func TestNewToken(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range []string{"a", "a", `"quoted" \ # {x}: [y]`, "ü", "007", "null"} {
		token, line, err := secure.NewToken(name)
		must.Succeed(t, err)
		if seen[token] || strings.Contains(line, token) {
			t.Errorf("token %q is not new, or in its line %q", token, line)
		}
		seen[token] = true
		tokens, err := read(t, line+"\n")
		if err != nil {
			t.Errorf("line %q: %v", line, err)
			continue
		}
		if got, err := (&secure.Callers{Tokens: tokens}).Name(token, nil); got != name || err != nil {
			t.Errorf("line %q names %q, %v, want %q", line, got, err, name)
		}
	}
}

// FuzzTokens checks that a file is refused, without quoting it, or admits its callers.
func FuzzTokens(f *testing.F) {
	f.Add("- {name: a, sha256: " + sum("a") + ", max-fetches: 5}\n")
	f.Add("- name: a\n  sha256: !!binary x\n- &x {<<: *x}\n")
	f.Add("---\n...\n---\n")
	f.Add("? [a]\n: {b: }\n")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := read(t, text)
		if err != nil {
			return
		}
		for name, most := range tokens.Limits() {
			if err := secure.CheckName(name); err != nil || most <= 0 {
				t.Errorf("%q admits %q with %d fetches: %v", text, name, most, err)
			}
		}
		if name, err := (&secure.Callers{Tokens: tokens}).Name("", nil); err == nil && !strings.Contains(text, sum("")) && !strings.Contains(strings.ToLower(text), sum("")) {
			t.Errorf("%q admits the empty token as %q", text, name)
		}
	})
}

// TestEmptyToken checks that an empty token is refused, even with the hash of the empty string in
// the file, and that no name is an address.
func TestEmptyToken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"127.0.0.1", "::1", "2001:db8::/64", "10.0.0.0/8"} {
		if secure.CheckName(name) == nil {
			t.Errorf("%s is a name", name)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(`[{name: ci, sha256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := secure.ReadTokens(path)
	if err != nil {
		return // refused, which is as good
	}
	callers := secure.Callers{Tokens: tokens}
	if name, err := callers.Name("", nil); err == nil {
		t.Errorf("no token at all is %s's", name)
	}
}
