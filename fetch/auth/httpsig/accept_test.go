package httpsig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

// asked returns a signer that an origin may ask for some signatures.
func asked(t testing.TB) *httpsig.Signer {
	t.Helper()
	old, secret := key(t, signatures.PEMP256), key(t, signatures.Base64HMAC)
	old.ID, secret.ID = "old", "shared"
	over, newest := key(t, signatures.PEMP256), key(t, signatures.PEMEd25519)
	over.ID, newest.ID = "over", "newest"
	over.NotAfter = now
	return signer(t, httpsig.Config{Keys: []*httpsig.Key{over, old, secret, newest}, Tag: "mine", AcceptTags: []string{"other"},
		Components: components(t, "@method", "@authority"), Optional: components(t, "date"),
		Accept: components(t, "@target-uri", "@path", `@query-param;name="Pet"`, "content-digest", `x-dict;key="a"`)})
}

// TestChoose has what origins may ask for.
func TestChoose(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, accept, want string }{
		{"no parameters", `a=("@authority")`, `a=("@authority");created=1618884473;keyid="newest";expires=1618884533;nonce=N;tag="mine"`},
		{"each parameter", `a=("@authority" "@path");created;expires;keyid="newest";alg="ed25519";tag="other";nonce="+/=-._~"`,
			`a=("@authority" "@path");created=1618884473;keyid="newest";expires=1618884533;nonce="+/=-._~";tag="other";alg="ed25519"`},
		{"the target in another order", `x-1.*=("@method" "@target-uri")`, `x-1.*=("@method" "@target-uri");created=1618884473;keyid="newest";expires=1618884533;nonce=N;tag="mine"`},
		{"a query parameter and a digest", `a=("@query-param";name="Pet" "content-digest" "@authority");tag="mine"`,
			`a=("@query-param";name="Pet" "content-digest" "@authority");created=1618884473;keyid="newest";expires=1618884533;nonce=N;tag="mine"`},
		{"an older key", `a=("@authority");keyid="old"`, `a=("@authority");created=1618884473;keyid="old";expires=1618884533;nonce=N;tag="mine"`},
		{"an algorithm", `a=("@authority");alg="hmac-sha256"`, `a=("@authority");created=1618884473;keyid="shared";expires=1618884533;nonce=N;tag="mine";alg="hmac-sha256"`},
		{"the second of three", `a=("cookie"), b=("@authority"), c=("@authority")`, `b=("@authority");created=1618884473;keyid="newest";expires=1618884533;nonce=N;tag="mine"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := asked(t)
			choice, _, ok := s.Choose([]string{row.accept}, get())
			if !ok {
				t.Fatal("ignored")
			}
			fields, err := s.Sign(get(), choice)
			must.Succeed(t, err)
			input := value(fields, "Signature-Input")
			start, nonce, _ := strings.Cut(input, `nonce="`)
			if nonce, end, _ := strings.Cut(nonce, `"`); len(nonce) == 43 {
				input = start + "nonce=N" + end
			}
			if input != row.want {
				t.Errorf("%s, want %s", input, row.want)
			}
			name := map[string]string{"newest": "test-key-ed25519", "old": "test-key-ecc-p256", "shared": "test-shared-secret"}
			for id, n := range name {
				if strings.Contains(input, `keyid="`+id) {
					if err := sent(get(), fields).Verify(choice.Label(), keys(t)[n]); err != nil {
						t.Error(err)
					}
				}
			}
			for _, f := range fields {
				if !slices.Contains(s.Headers(), f.Name) {
					t.Errorf("%s is not among the headers of the signer", f.Name)
				}
			}
		})
	}
}

// TestChooseIgnores has what an origin must not get. The reasons name what was asked for, and show nothing that is
// long, not in printable ASCII, or the value of something else.
func TestChooseIgnores(t *testing.T) {
	t.Parallel()
	member := func(n int) string { return strings.TrimSuffix(strings.Repeat(`hush=("cookie"), `, n), ", ") }
	many := ""
	printable := " "
	for r := '!'; r <= '~'; r++ {
		printable += string(r)
	}
	for i := range 20 {
		many += fmt.Sprintf(`, a%d=("cookie")`, i)
	}
	for _, row := range []struct{ name, accept, want string }{
		{"nothing", ``, ""},
		{"another component", `a=("@authority" "cookie")`, `component "cookie" is none of components, optional and accept-components`},
		{"a component that is known", `a=("@authority" "authorization")`, `component "authorization" is none of components`},
		{"a query parameter without a name", `a=("@authority" "@query-param")`, `component "@query-param" cannot be covered`},
		{"another key of a dictionary", `a=("@authority" "x-dict";key="other")`, `component "x-dict";key="other" is none of components`},
		{"the bytes of a field", `a=("@authority" "date";bs)`, `component "date";bs is none of components`},
		{"a trailer", `a=("@authority" "date";tr)`, `component "date";tr cannot be covered`},
		{"of another request", `a=("@authority";req)`, `component "@authority";req cannot be covered`},
		{"a component that is a token", `a=(hush)`, "component (not shown) cannot be covered"},
		{"a component that is bytes", `a=(:aHVzaA==:)`, "component (not shown) cannot be covered"},
		{"a component of 61 bytes", `a=("hush` + strings.Repeat("a", 55) + `")`, "component (not shown) is none of components"},
		{"a component of 60 bytes", `a=("` + strings.Repeat("a", 58) + `")`, `component "` + strings.Repeat("a", 58) + `" is none of components`},
		{"a component with quotes", `a=("@authority" "a\"b")`, `component "a\"b" cannot be covered`},
		{"the agent of a signer without one", `a=("@authority" "signature-agent";key="a")`, `component "signature-agent";key="a" is none of components`},
		{"a component twice", `a=("@authority" "@authority")`, `component "@authority" is asked for twice`},
		{"no component", `a=()`, "neither @authority nor @target-uri"},
		{"another tag", `a=("@authority");tag="payment"`, `a: tag "payment" is none of tag and accept-tags`},
		{"a tag of 60 bytes", `a=("@authority");tag="` + strings.Repeat("a", 60) + `"`, `tag "` + strings.Repeat("a", 60) + `" is none`},
		{"a long tag", `a=("@authority");tag="hush` + strings.Repeat("a", 57) + `"`, "tag (not shown) is none of tag and accept-tags"},
		{"a tag that is none", `a=("@authority");tag`, "parameter tag is not a string of 1 to 256 characters"},
		{"another key", `a=("@authority");keyid="other"`, `keyid "other" is that of no key in key-files`},
		{"a key that ended", `a=("@authority");keyid="over"`, `no key is valid now: key "over" ended at 2021-04-20T02:07:53Z`},
		{"an algorithm of another key", `a=("@authority");alg="hmac-sha256";keyid="newest"`, `alg "hmac-sha256" is not that of the key with keyid "newest"`},
		{"an unknown parameter", `a=("@authority");other="hush"`, `parameter "other" is unknown`},
		{"a long parameter", `a=("@authority");hush` + strings.Repeat("a", 57) + `=1`, "parameter (not shown) is unknown"},
		{"a time of creation", `a=("@authority");created=1`, "created"},
		{"a nonce that is a sentence", `a=("@authority");nonce="I owe you; hush"`, "nonce"},
		{"a nonce that is empty", `a=("@authority");nonce=""`, "parameter nonce"},
		{"a long nonce", `a=("@authority");nonce="` + strings.Repeat("a", 257) + `"`, "parameter nonce"},
		{"no list", `a="@authority"`, "not a list"},
		{"no dictionary", `("@authority")`, "not a dictionary"},
		{"a broken list", `a=("@authority"`, "not a dictionary"},
		{"a field that the request lacks", `a=("@authority" "date")`, `a: cannot sign "date": the request does not have it`},
		{"a member that the request lacks", `a=("@authority" "x-dict";key="a")`, `a: cannot sign "x-dict";key="a": the request does not have it`},
		{"a long label", strings.Repeat("a", 300) + `=("@authority")`, "too long"},
		{"40 components", `a=(` + strings.Repeat(`"@path" `, 40) + `)`, "too long"},
		{"a long field", member(1) + strings.Repeat(" ", 5000), "longer than"},
		{"twenty", many[2:], "more than 8"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := asked(t)
			choice, ignored, ok := s.Choose([]string{row.accept}, get())
			if ok || choice.Label() != "" {
				t.Fatal("it is chosen")
			}
			text := fmt.Sprint(ignored)
			if !strings.Contains(text, row.want) || len(ignored) > 9 || strings.Contains(text, "hush") || strings.Trim(text, printable) != "" || !noKeys(ignored) {
				t.Errorf("%v, want %q", ignored, row.want)
			}
		})
	}
}

// TestChooseOfProfile checks that an origin cannot ask for less than the profile needs.
func TestChooseOfProfile(t *testing.T) {
	t.Parallel()
	s := signer(t, httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.JWKEd25519)}, Profile: httpsig.WebBotAuth, Agent: "https://Bot.example/",
		AcceptTags: []string{"other"}, Accept: components(t, "@path")})
	for accept, want := range map[string]bool{
		`a=("@authority" "signature-agent";key="a")`:                                                     true,
		`a=("@path" "@authority" "signature-agent";key="a");nonce="x";tag="web-bot-auth"`:                true,
		`a=("@authority" "signature-agent";key="a");keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"`: true,
		`a=("@authority" "signature-agent";key="a");keyid="test-key-ed25519"`:                            false,
		`a=("@authority" "signature-agent";key="a");tag="other"`:                                         false,
		`a=("@authority" "signature-agent";key="b")`:                                                     false,
		`a=("@authority" "signature-agent")`:                                                             false,
		`a=("@authority")`:                                                                               false,
		`a=("signature-agent";key="a")`:                                                                  false,
	} {
		choice, ignored, ok := s.Choose([]string{accept}, get())
		if ok != want {
			t.Errorf("%s: %t, %v", accept, ok, ignored)
		}
		if !ok {
			continue
		}
		fields, err := s.Sign(get(), choice)
		if err != nil || value(fields, "Signature-Agent") != `a="https://bot.example"` || !strings.Contains(value(fields, "Signature-Input"), `;tag="web-bot-auth"`) {
			t.Errorf("%s: %v %v", accept, fields, err)
		}
		if err := sent(get(), fields).Verify("a", keys(t)["test-key-ed25519"]); err != nil {
			t.Errorf("%s: %v", accept, err)
		}
	}
	own, err := s.Sign(get(), httpsig.Choice{})
	if diff := cmp.Diff(`sig1=("@authority" "signature-agent";key="sig1");created=1618884473;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";expires=1618884533;nonce=`,
		strings.Split(value(own, "Signature-Input"), `"`+nonceOf(own))[0]); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if err := sent(get(), own).Verify("sig1", keys(t)["test-key-ed25519"]); err != nil {
		t.Error(err)
	}
	other := sent(get(), own)
	other.Authority = "evil.example"
	if other.Verify("sig1", keys(t)["test-key-ed25519"]) == nil {
		t.Error("it is of use at another origin")
	}
	if _, err := s.Sign(&signing.Message{Header: map[string][]string{"Signature-Agent": {`sig1="https://evil.example"`}}}, httpsig.Choice{}); err == nil {
		t.Error("a caller can be another agent")
	}
}

// TestVectorOfAgentString makes the signature of the draft with the old form again, as an origin asks
// for it.
func TestVectorOfAgentString(t *testing.T) {
	t.Parallel()
	m := received(t, "agent-string.http")
	s := signer(t, httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.PEMEd25519)}, Profile: httpsig.WebBotAuth, Agent: "https://signature-agent.test",
		AgentString: true, Lifetime: time.Hour, Parameters: []string{"created", "keyid", "alg", "expires", "nonce", "tag"}})
	made := time.Unix(1735689600, 0)
	choice, ignored, ok := s.Choose([]string{`sig2=("@authority" "signature-agent");nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg=="`}, at(get(), made))
	if !ok {
		t.Fatal(ignored)
	}
	fields, err := s.Sign(at(get(), made), choice)
	must.Succeed(t, err)
	for _, name := range []string{"Signature-Agent", "Signature-Input", "Signature"} {
		if got, want := value(fields, name), m.Values(name)[0]; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	own, err := s.Sign(at(get(), made), httpsig.Choice{})
	if err != nil || !strings.HasPrefix(value(own, "Signature-Input"), `sig1=("@authority" "signature-agent");`) {
		t.Error(own, err)
	}
}

func nonceOf(fields []signing.Field) string {
	_, rest, _ := strings.Cut(value(fields, "Signature-Input"), `nonce="`)
	nonce, _, _ := strings.Cut(rest, `"`)
	return nonce
}
