package httpsig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBases compares signature bases with those of RFC 9421 appendix B and of the draft.
func TestBases(t *testing.T) {
	t.Parallel()
	for file, label := range map[string]string{"b21": "sig-b21", "b22": "sig-b22", "b23": "sig-b23", "b25": "sig-b25",
		"b26": "sig-b26", "b3": "ttrp", "b4": "transform", "agent": "sig2"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			m := received(t, file+".http")
			got, err := httpsig.Base(unsigned(m), m.Members("signature-input")[label])
			if diff := cmp.Diff(read(t, file+".base"), got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// TestVectors makes the signatures of others again, byte for byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	hmac := key(t, signatures.Base64HMAC)
	hmac.ID = "test-shared-secret"
	for _, row := range []struct {
		file string
		cfg  httpsig.Config
	}{
		{"b25", httpsig.Config{Keys: []*httpsig.Key{hmac}, Label: "sig-b25", Parameters: []string{"created", "keyid"},
			Components: components(t, "date", "@authority", "content-type")}},
		{"b26", httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.JWKEd25519)}, Label: "sig-b26", Parameters: []string{"created", "keyid"},
			Components: components(t, "date", "@method", "@path", "@authority", "content-type", "content-length")}},
		{"b4", httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.JWKEd25519)}, Label: "transform", Parameters: []string{"created", "keyid"},
			Components: components(t, "@method", "@path", "@authority", "accept")}},
	} {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			m := received(t, row.file+".http")
			fields, err := signer(t, row.cfg).Sign(unsigned(m), httpsig.Choice{})
			want := []signing.Field{{Name: "Signature-Input", Value: m.Values("signature-input")[0]}, {Name: "Signature", Value: m.Values("signature")[0]}}
			if diff := cmp.Diff(want, fields); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// TestVectorOfAgent makes the signature of the draft again. Its Signature-Agent has another
// label than its signature, and it is valid for a century, so its label is changed, which
// is not signed, and the profile is not set.
func TestVectorOfAgent(t *testing.T) {
	t.Parallel()
	m := received(t, "agent.http")
	made := time.Unix(1735689600, 0)
	s := signer(t, httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.PEMEd25519)}, Agent: "https://signature-agent.test",
		Components: components(t, "@authority", `signature-agent;key="agent2"`), Lifetime: time.Unix(4889289600, 0).Sub(made),
		Parameters: []string{"created", "keyid", "alg", "expires", "nonce", "tag"}, Tag: httpsig.WebBotAuth})
	if _, _, ok := s.Choose([]string{strings.Replace(m.Values("signature-input")[0], "sig2=", "agent2=", 1)}, at(get(), made)); ok {
		t.Error("an origin can set created")
	}
	ask := `agent2=("@authority" "signature-agent";key="agent2");created;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth"`
	choice, ignored, ok := s.Choose([]string{ask}, at(get(), made))
	if !ok {
		t.Fatal(ignored)
	}
	fields, err := s.Sign(at(get(), made), choice)
	must.Succeed(t, err)
	if got, want := value(fields, "Signature"), strings.Replace(m.Values("signature")[0], "sig2", "agent2", 1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := value(fields, "Signature-Agent"), m.Values("signature-agent")[0]; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSign has each algorithm sign requests with many components, and the verifier of the
// tests verify them.
func TestSign(t *testing.T) {
	t.Parallel()
	many := components(t, "@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query",
		`@query-param;name="a%20b"`, `@query-param;name="empty"`, "content-digest", `content-digest;key="sha-256"`, "date", "x-two", `"x-two";bs`,
		`x-dict;key="c"`, `x-dict;key="d"`, "priority;sf", "x-empty")
	for name, text := range map[string]string{"test-key-ed25519": signatures.PEMEd25519, "test-key-ecc-p256": signatures.PEMP256, "test-shared-secret": signatures.Base64HMAC} {
		k := key(t, text)
		k.ID = name + ` "\`
		s := signer(t, httpsig.Config{Keys: []*httpsig.Key{k}, Components: many, Optional: components(t, "x-there", "x-missing"), Tag: `of "mine"\ `})
		for _, body := range []string{"", "body"} {
			r := get()
			r.Method, r.URL.Scheme, r.Authority, r.Target, r.Body = "PUT", "http", "Example.COM:80", "/p%2Fq/?a+b=c+%26%C3%BC~&empty=", []byte(body)
			r.Header = map[string][]string{"Date": {"today "}, "X-Two": {"one, two", "  three"}, "X-Dict": {"a=1,  b=2;x,  c=(a   b)", "d;y"},
				"Priority": {"u=2,    i"}, "X-Empty": {""}, "X-There": {"x"}}
			fields, err := s.Sign(r, httpsig.Choice{})
			must.Succeed(t, err)
			m := sent(r, fields)
			if err := m.Verify("sig1", keys(t)[name]); err != nil {
				t.Errorf("%s, %q: %v", name, body, err)
			}
			input := value(fields, "Signature-Input")
			if !strings.Contains(input, `"x-there");created=1618884473;keyid="`+name+` \"\\";expires=1618884533;nonce="`) || !strings.HasSuffix(input, `;tag="of \"mine\"\\ "`) {
				t.Error(input)
			}
			m.Body = []byte("another")
			if m.Verify("sig1", keys(t)[name]) == nil {
				t.Errorf("%s: another body is accepted", name)
			}
		}
	}
}

// TestSignTwice checks that two signatures of one request differ, although Ed25519 and
// HMAC are deterministic.
func TestSignTwice(t *testing.T) {
	t.Parallel()
	s := signer(t, httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.PEMEd25519)}})
	first, _ := s.Sign(get(), httpsig.Choice{})
	second, _ := s.Sign(get(), httpsig.Choice{})
	if value(first, "Signature") == value(second, "Signature") {
		t.Error("both have one nonce")
	}
	if diff := cmp.Diff([]string{"Signature-Input", "Signature", "Content-Digest"}, s.Headers()); diff != "" {
		t.Error(diff)
	}
}

// TestSignRefuses has requests that cannot be signed. No error has a value of the request.
func TestSignRefuses(t *testing.T) {
	t.Parallel()
	later := key(t, signatures.PEMEd25519)
	later.NotBefore = now.Add(time.Second)
	over := key(t, signatures.PEMEd25519)
	over.NotAfter = now
	for _, row := range []struct {
		name       string
		components []string
		keys       []*httpsig.Key
		change     func(*signing.Message)
		want       string
	}{
		{name: "a field that is missing", components: []string{"date"}, want: "does not have it"},
		{name: "a dictionary without the key", components: []string{`x;key="b"`}, change: header("X", "a=hush"), want: "does not have this key"},
		{name: "no dictionary", components: []string{`x;key="b"`}, change: header("X", "hush!, ?"), want: "not a valid structured field"},
		{name: "a field that is no dictionary", components: []string{"priority;sf"}, change: header("Priority", "=hush"), want: "not a valid structured field"},
		{name: "a value with a line", components: []string{"x"}, change: header("X", "hush\n\"@method\": PUT"), want: "printable ASCII"},
		{name: "a value in Latin-1", components: []string{"x"}, change: header("X", "hush\xe9"), want: "printable ASCII"},
		{name: "a target with a line", components: []string{"@path"}, change: func(r *signing.Message) { r.Target = "/hush\n" }, want: "printable ASCII"},
		{name: "a query parameter that is missing", components: []string{`@query-param;name="pet"`}, want: "does not have this query parameter"},
		{name: "a query parameter twice", components: []string{`@query-param;name="a"`}, change: func(r *signing.Message) { r.Target = "/?a=hush&%61=2" }, want: "more than once"},
		{name: "a query parameter in Latin-1", components: []string{`@query-param;name="a"`}, change: func(r *signing.Message) { r.Target = "/?a=%e9" }, want: "not UTF-8"},
		{name: "a digest of the caller", change: header("Content-Digest", "sha-256=:aHVzaA==:"), want: "Content-Digest itself"},
		{name: "an input of the caller", change: header("Signature-Input", "hush=()"), want: "Signature-Input itself"},
		{name: "a key of tomorrow", keys: []*httpsig.Key{later}, want: `no key is valid now: key "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U" starts at 2021-04-20T02:07:54Z`},
		{name: "a key of yesterday", keys: []*httpsig.Key{over}, want: `no key is valid now: key "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U" ended at 2021-04-20T02:07:53Z`},
		{name: "five keys", keys: []*httpsig.Key{over, later, over, later, over}, want: "ended at 2021-04-20T02:07:53Z, 2 more"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.keys == nil {
				row.keys = []*httpsig.Key{key(t, signatures.PEMEd25519)}
			}
			r := get()
			if row.change != nil {
				row.change(r)
			}
			fields, err := signer(t, httpsig.Config{Keys: row.keys, Components: components(t, row.components...)}).Sign(r, httpsig.Choice{})
			if err == nil || fields != nil || !strings.Contains(fmt.Sprint(err), row.want) || strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("%v, %v; want an error with %q and without the value", fields, err, row.want)
			}
		})
	}
}

func header(name, value string) func(*signing.Message) {
	return func(r *signing.Message) { r.Header.Add(name, value) }
}

// TestNewestKey checks which of several keys signs.
func TestNewestKey(t *testing.T) {
	t.Parallel()
	made := func(id string, from, until time.Duration) *httpsig.Key {
		k := key(t, signatures.PEMEd25519)
		k.ID = id
		if from != 0 {
			k.NotBefore = now.Add(from)
		}
		if until != 0 {
			k.NotAfter = now.Add(until)
		}
		return k
	}
	for _, row := range []struct {
		name string
		keys []*httpsig.Key
		want string
	}{
		{"the last of a list", []*httpsig.Key{made("a", 0, 0), made("b", 0, 0)}, "b"},
		{"the latest start, not the last", []*httpsig.Key{made("a", -time.Hour, 0), made("b", -2*time.Hour, 0), made("c", 0, 0)}, "a"},
		{"not one that begins later", []*httpsig.Key{made("a", -time.Hour, 0), made("b", time.Hour, 0)}, "a"},
		{"one that begins now", []*httpsig.Key{made("a", -time.Hour, 0), made("b", 0, time.Hour)}, "a"},
		{"not one that ended", []*httpsig.Key{made("a", -time.Hour, 0), made("b", -time.Minute, -time.Second)}, "a"},
	} {
		fields, err := signer(t, httpsig.Config{Keys: row.keys}).Sign(get(), httpsig.Choice{})
		if err != nil || !strings.Contains(value(fields, "Signature-Input"), `keyid="`+row.want+`"`) {
			t.Errorf("%s: %v %v, want %s", row.name, fields, err, row.want)
		}
	}
}

// TestComponents has identifiers that are rejected when they are configured, and some that
// are not.
func TestComponents(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"@method", ""}, {`"@method"`, ""}, {`x-dict;key="a b"`, ""}, {"content-length", ""}, {`@query-param;name="a%20b"`, ""}, {"content-digest;sf", ""},
		{"", "is not the name"}, {"a b", "is not the name"}, {"Date", "lower case"}, {"@status", "is unknown"}, {"@signature-params", "is unknown"}, {"@", "is unknown"},
		{"date;tr", "not for requests"}, {"@authority;req", "not for requests"}, {"date;x", "unknown here"}, {"date;sf=?0", "unknown here"}, {"date;key=a", "unknown here"},
		{`date;key=""`, "unknown here"}, {`date;name="a"`, "unknown here"}, {"@query-param", "give @query-param a name"}, {`@path;key="a"`, "are for fields"}, {"@path;bs", "are for fields"},
		{`@query-param;name="a b"`, "percent-encoded"}, {`@query-param;name="%C3"`, "percent-encoded"}, {`@query-param;name="%c3%bc"`, "percent-encoded"},
		{"x;bs;sf", "cannot be combined"}, {`x;bs;key="a"`, "cannot be combined"}, {`priority;sf;key="u"`, "part of key"}, {"date;sf", "is not known"},
		{"signature", "cannot cover"}, {"connection", "cannot cover"}, {"host", "use @authority"}, {`"date`, "is not a name"}, {"date\n", "is not a name"}, {"1", "1"},
		{strings.Repeat("a", 300), "longer than"},
	} {
		c, err := httpsig.ParseComponent(row.text)
		if row.text == "1" {
			continue // a field may be called so
		}
		if (err == nil) != (row.want == "") || !strings.Contains(fmt.Sprint(err), row.want) {
			t.Errorf("%q: %v, %v; want %q", row.text, c, err, row.want)
		}
	}
}

// TestNewRefuses checks that errors name what is wrong, and have no key.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*testing.T, *httpsig.Config)
		want   string
	}{
		{"no key", func(_ *testing.T, c *httpsig.Config) { c.Keys = nil }, "no key"},
		{"an unknown profile", func(_ *testing.T, c *httpsig.Config) { c.Profile = "bot" }, "profile"},
		{"the profile without an agent", func(_ *testing.T, c *httpsig.Config) { c.Profile, c.Agent = httpsig.WebBotAuth, "" }, "agent"},
		{"the profile with HMAC", func(t *testing.T, c *httpsig.Config) {
			c.Profile, c.Keys = httpsig.WebBotAuth, []*httpsig.Key{key(t, signatures.Base64HMAC)}
		}, "key pair"},
		{"the profile for two days", func(_ *testing.T, c *httpsig.Config) { c.Profile, c.Lifetime = httpsig.WebBotAuth, 48*time.Hour }, "lifetime"},
		{"the profile with a tag", func(_ *testing.T, c *httpsig.Config) { c.Profile, c.Tag = httpsig.WebBotAuth, "mine" }, "tag"},
		{"the profile without the authority", func(t *testing.T, c *httpsig.Config) {
			c.Profile, c.Components = httpsig.WebBotAuth, components(t, "@path")
		}, "@authority"},
		{"the profile with its own component", func(t *testing.T, c *httpsig.Config) {
			c.Profile, c.Components = httpsig.WebBotAuth, components(t, "@authority", `signature-agent;key="sig1"`)
		}, "remove it"},
		{"the profile without expires", func(_ *testing.T, c *httpsig.Config) {
			c.Profile, c.Parameters = httpsig.WebBotAuth, []string{"created", "keyid", "tag"}
		}, "expires"},
		{"an agent in plaintext", func(_ *testing.T, c *httpsig.Config) { c.Agent = "http://bot.example" }, `agent: "http://bot.example" is not an https origin: give`},
		{"an agent with a path", func(_ *testing.T, c *httpsig.Config) { c.Agent = "https://bot.example/keys" }, `agent: "https://bot.example/keys" is not`},
		{"an agent with userinfo", func(_ *testing.T, c *httpsig.Config) { c.Agent = "https://a@bot.example" }, "agent: (not shown) is not"},
		{"an agent in Unicode", func(_ *testing.T, c *httpsig.Config) { c.Agent = "https://bötchen.example" }, "agent"},
		{"a component twice", func(t *testing.T, c *httpsig.Config) { c.Components = components(t, "@path", `"@path"`) }, "twice"},
		{"an optional component twice", func(t *testing.T, c *httpsig.Config) {
			c.Components, c.Optional = components(t, "date"), components(t, "date")
		}, "twice"},
		{"an optional path", func(t *testing.T, c *httpsig.Config) { c.Optional = components(t, `@query-param;name="a"`) }, "each request has it"},
		{"40 components", func(t *testing.T, c *httpsig.Config) { c.Optional = slices.Repeat(components(t, "date"), 40) }, "more than 32"},
		{"an unknown parameter", func(_ *testing.T, c *httpsig.Config) { c.Parameters = []string{"created", "date"} }, "parameters"},
		{"a parameter twice", func(_ *testing.T, c *httpsig.Config) { c.Parameters = []string{"created", "created"} }, "parameters"},
		{"a label with a quote", func(_ *testing.T, c *httpsig.Config) { c.Label = `a"` }, "label"},
		{"a label in capitals", func(_ *testing.T, c *httpsig.Config) { c.Label = "Sig" }, "label"},
		{"a tag of two lines", func(_ *testing.T, c *httpsig.Config) { c.Tag = "a\nb" }, "tag"},
		{"a long tag", func(_ *testing.T, c *httpsig.Config) { c.AcceptTags = []string{strings.Repeat("a", 300)} }, "tag"},
		{"a secret without an id", func(t *testing.T, c *httpsig.Config) { c.Keys = []*httpsig.Key{key(t, signatures.Base64HMAC)} }, "key-id: is missing, and a secret has none"},
		{"no time", func(_ *testing.T, c *httpsig.Config) { c.Lifetime = time.Millisecond }, "lifetime"},
		{"an agent that is not covered", func(*testing.T, *httpsig.Config) {}, "set the profile web-bot-auth, or add signature-agent"},
		{"an agent that is not always covered", func(t *testing.T, c *httpsig.Config) { c.Optional = components(t, "signature-agent") }, "agent: "},
		{"an agent that an origin may ask for", func(t *testing.T, c *httpsig.Config) { c.Accept = components(t, "signature-agent") }, "agent: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cfg := httpsig.Config{Keys: []*httpsig.Key{key(t, signatures.PEMEd25519)}, Agent: "https://bot.example"}
			row.change(t, &cfg)
			s, err := httpsig.New(cfg)
			if err == nil || s != nil || !strings.Contains(fmt.Sprint(err), row.want) || !noKeys(err) {
				t.Errorf("%v, want an error with %q", err, row.want)
			}
		})
	}
}
