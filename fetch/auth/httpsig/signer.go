package httpsig

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"fetchd/fetch/signing"
)

// WebBotAuth is the profile and tag of draft-meunier-webbotauth-httpsig-protocol-02, which
// continues draft-meunier-web-bot-auth-architecture and
// draft-meunier-http-message-signatures-directory.
const WebBotAuth = "web-bot-auth"

// Limits and defaults of a [Config].
const (
	// DefaultLifetime is the time from created to expires.
	DefaultLifetime = time.Minute
	// MaxLifetime is the maximum of the profile WebBotAuth.
	MaxLifetime = 24 * time.Hour
	// DefaultLabel is the label of signatures that no origin asked for.
	DefaultLabel = "sig1"

	maxComponents = 32
	maxText       = 256 // of labels, tags, key ids and nonces
	nonceBytes    = 32
)

// Names of the parameters of a signature.
var parameters = []string{"created", "keyid", "alg", "expires", "nonce", "tag"}

// Config configures a [Signer]. Keys is required.
type Config struct {
	// Keys sign. Of the keys that are valid, the one with the latest NotBefore signs, and
	// among equals the last one.
	Keys []*Key `yaml:"-"`
	// Profile is empty or WebBotAuth.
	Profile string `yaml:"profile"`
	// Agent is the origin that publishes the keys, such as https://bot.example.com. It is
	// sent in Signature-Agent. The profile requires it. Without a profile, Components must
	// have signature-agent.
	Agent string `yaml:"agent"`
	// AgentString sends Signature-Agent as a string and not as a dictionary, as drafts before
	// draft-meunier-web-bot-auth-architecture-04 did. Some verifiers know only that.
	AgentString bool `yaml:"-"`

	// Components are covered by each signature. A request that does not have one cannot be
	// signed. Empty means @method, @authority, @path, @query and content-digest, or
	// @authority for the profile. The profile adds its Signature-Agent.
	Components []Component `yaml:"-"`
	// Optional lists fields that are covered if the request has them.
	Optional []Component `yaml:"-"`
	// Accept lists more components that an origin may ask for.
	Accept []Component `yaml:"-"`

	// Label is the label of the signature. Empty means DefaultLabel.
	Label string `yaml:"label"`
	// Parameters are the parameters of the signature, in order. Empty means created, keyid,
	// expires and nonce, and tag if there is one.
	Parameters []string `yaml:"parameters"`
	// Lifetime is the time from created to expires. Zero means DefaultLifetime.
	Lifetime time.Duration `yaml:"lifetime"`
	// Tag is the tag parameter. The profile sets it. AcceptTags lists more that an origin
	// may ask for.
	Tag        string   `yaml:"tag"`
	AcceptTags []string `yaml:"accept-tags"`
}

// Signer signs requests. It is immutable and safe for concurrent use.
type Signer struct {
	cfg     Config
	headers []string
}

// New returns a signer. The error names what is wrong, and contains no key.
func New(cfg Config) (*Signer, error) {
	if len(cfg.Keys) == 0 {
		return nil, errors.New("there is no key")
	}
	if cfg.Agent != "" {
		var err error
		if cfg.Agent, err = ParseAgent(cfg.Agent); err != nil {
			return nil, err
		}
	}
	if err := cfg.profile(); err != nil {
		return nil, err
	}
	if len(cfg.Components) == 0 {
		for _, name := range []string{"@method", "@authority", "@path", "@query", "content-digest"} {
			cfg.Components = append(cfg.Components, field(name))
		}
	}
	if cfg.Label == "" {
		cfg.Label = DefaultLabel
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = DefaultLifetime
	}
	if len(cfg.Parameters) == 0 {
		cfg.Parameters = []string{"created", "keyid", "expires", "nonce"}
		if cfg.Tag != "" {
			cfg.Parameters = append(cfg.Parameters, "tag")
		}
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Signer{cfg: cfg, headers: cfg.headers()}, nil
}

// field returns the component of a name without parameters.
func field(name string) Component { return Component{id: `"` + name + `"`, name: name} }

// ParseAgent returns an agent in its canonical form, or an error that quotes it, unless it may have a password.
func ParseAgent(agent string) (string, error) {
	u, err := url.Parse(agent)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
		u.Fragment != "" || len(u.Host) > maxText || strings.Trim(strings.ToLower(u.Host), hostCharacters) != "" {
		shown := "(not shown)"
		if !strings.Contains(agent, "@") {
			shown = fmt.Sprintf("%.80q", agent)
		}
		return "", fmt.Errorf("agent: %s is not an https origin: give the one that publishes the keys, such as https://bot.example.com", shown)
	}
	return "https://" + strings.ToLower(u.Host), nil
}

// profile checks and completes the configuration of a profile.
func (cfg *Config) profile() error {
	switch {
	case cfg.Profile == "":
		return nil
	case cfg.Profile != WebBotAuth:
		return fmt.Errorf("profile %.40q: the only profile is %s", cfg.Profile, WebBotAuth)
	case cfg.Agent == "":
		return errors.New("agent: the profile web-bot-auth needs the origin that publishes the keys, such as https://bot.example.com")
	case cfg.Tag != "" && cfg.Tag != WebBotAuth:
		return errors.New("tag: the profile web-bot-auth has its own")
	case cfg.Lifetime > MaxLifetime:
		return fmt.Errorf("lifetime: the profile web-bot-auth allows %s", MaxLifetime)
	}
	cfg.Tag = WebBotAuth
	if len(cfg.Components) == 0 {
		cfg.Components = []Component{field("@authority")}
	}
	if !binds(cfg.Components) {
		return errors.New("components: the profile web-bot-auth covers @authority or @target-uri")
	}
	for _, c := range slices.Concat(cfg.Components, cfg.Optional) {
		if c.name == "signature-agent" {
			return fmt.Errorf("components: %s: remove it: the profile adds it", c)
		}
	}
	for _, name := range []string{"created", "expires", "keyid", "tag"} {
		if len(cfg.Parameters) > 0 && !slices.Contains(cfg.Parameters, name) {
			return fmt.Errorf("parameters: the profile web-bot-auth needs %s", name)
		}
	}
	keys := make([]*Key, len(cfg.Keys))
	for i, k := range cfg.Keys {
		if k.private == nil {
			return errors.New("the profile web-bot-auth needs a key pair: a secret has no public key to publish")
		}
		own := *k
		own.ID = k.thumbprint
		keys[i] = &own
	}
	cfg.Keys = keys
	return nil
}

// hostCharacters are those of a host in ASCII with a port.
const hostCharacters = "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]"

// binds reports whether components contain the authority, so that a signature is of no
// use at another origin.
func binds(components []Component) bool {
	return slices.ContainsFunc(components, func(c Component) bool { return c.name == "@authority" || c.name == "@target-uri" })
}

// check checks a complete configuration.
func (cfg *Config) check() error {
	if err := cfg.checkComponents(); err != nil {
		return err
	}
	for i, name := range cfg.Parameters {
		if !slices.Contains(parameters, name) || slices.Contains(cfg.Parameters[:i], name) {
			return fmt.Errorf("parameters: %.40q: give each of %s at most once", name, strings.Join(parameters, ", "))
		}
	}
	d := httpsfv.NewDictionary()
	d.Add(cfg.Label, httpsfv.NewItem(true))
	if _, err := httpsfv.Marshal(d); err != nil || len(cfg.Label) > maxText {
		return errors.New("label: give lower-case letters, digits, _, -, . and *, such as sig1")
	}
	for _, tag := range append([]string{cfg.Tag}, cfg.AcceptTags...) {
		if err := checkText(tag); err != nil {
			return fmt.Errorf("tag: %w", err)
		}
	}
	for _, k := range cfg.Keys {
		if err := checkText(k.ID); err != nil {
			return fmt.Errorf("key-id: %w", err)
		}
		if k.ID == "" && slices.Contains(cfg.Parameters, "keyid") {
			return errors.New("key-id: is missing, and a secret has none: give the one that you agreed on with the origin, or leave keyid out of the parameters")
		}
	}
	if cfg.Lifetime < time.Second {
		return errors.New("lifetime: give at least 1s")
	}
	if cfg.Agent != "" && cfg.Profile == "" && !slices.ContainsFunc(cfg.Components, func(c Component) bool { return c.name == "signature-agent" }) {
		return errors.New("agent: the signature would not cover it: set the profile web-bot-auth, or add signature-agent to the components")
	}
	return nil
}

func (cfg *Config) checkComponents() error {
	all := slices.Concat(cfg.Components, cfg.Optional)
	if len(all) > maxComponents || len(cfg.Accept) > maxComponents {
		return fmt.Errorf("components: more than %d", maxComponents)
	}
	for i, c := range all {
		if slices.ContainsFunc(all[:i], func(o Component) bool { return o.id == c.id }) {
			return fmt.Errorf("components: %s is listed twice", c)
		}
	}
	if cfg.Agent == "" && slices.ContainsFunc(slices.Concat(all, cfg.Accept), func(c Component) bool { return c.name == "signature-agent" }) {
		return errors.New("agent: is missing, but signature-agent is covered: a caller could choose it. Set the https origin that publishes the keys")
	}
	for _, c := range cfg.Optional {
		if strings.HasPrefix(c.name, "@") || c.name == "content-digest" {
			return fmt.Errorf("optional: %s: list it with the components: each request has it", c)
		}
	}
	return nil
}

// checkText returns an error if text cannot be a parameter.
func checkText(text string) error {
	if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return fmt.Errorf("give at most %d printable ASCII characters", maxText)
	}
	return nil
}

// Choice is what a signature covers and which parameters it has. The zero value is the
// signature of the configuration.
type Choice struct {
	label      string
	components []Component
	key        string // keyid; empty means any
	algorithm  string
	parameters []string
	nonce, tag string
}

// Label returns the label of the signature, or an empty string for the zero value.
func (c Choice) Label() string { return c.label }

// Headers returns the canonical names of the fields that Sign can add.
func (s *Signer) Headers() []string { return s.headers }

func (cfg *Config) headers() []string {
	names := []string{"Signature-Input", "Signature"}
	if cfg.Agent != "" {
		names = append(names, "Signature-Agent")
	}
	if slices.ContainsFunc(slices.Concat(cfg.Components, cfg.Accept), func(c Component) bool { return c.name == "content-digest" }) {
		names = append(names, "Content-Digest")
	}
	return names
}

// Published returns the origin that publishes the public keys, and the keys. The origin is empty if
// no profile is set.
func (s *Signer) Published() (agent string, keys []*Key) {
	if s.cfg.Profile == "" {
		return "", nil
	}
	return s.cfg.Agent, slices.Clone(s.cfg.Keys)
}

// Binds reports whether the signature of the configuration covers @authority or @target-uri. Otherwise it is valid
// at each origin that knows the key.
func (s *Signer) Binds() bool { return binds(s.cfg.Components) }

// Sign returns the fields to add to a request: the signature of the configuration, or the one that
// [Signer.Choose] returned. The request must not have fields that [Signer.Headers] names: a
// caller's digest could be of another body.
func (s *Signer) Sign(request *signing.Message, choice Choice) ([]signing.Field, error) {
	m := &message{Message: request}
	if choice.label == "" {
		choice = Choice{label: s.cfg.Label, tag: s.cfg.Tag, parameters: s.cfg.Parameters, components: s.components(m)}
	}
	for _, name := range s.headers {
		if len(m.Header[name]) > 0 {
			return nil, fmt.Errorf("sign: the request sets the field %s itself", name)
		}
	}
	key, err := current(s.cfg.Keys, m.Time, choice)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	s.complete(m, choice)
	text, input, err := base(choice.components, s.params(choice, key, m.Time), m.value)
	if err != nil {
		return nil, err
	}
	return attach(m.added, choice.label, key, text, input)
}

// Current returns the key that signs at a time if no origin asks for another.
func (s *Signer) Current(at time.Time) (*Key, error) { return Current(s.cfg.Keys, at) }

// components returns what the configuration covers of a request.
func (s *Signer) components(m *message) []Component {
	all := slices.Clip(s.cfg.Components)
	for _, c := range s.cfg.Optional {
		if len(m.values(c.name)) > 0 {
			all = append(all, c)
		}
	}
	if s.cfg.Profile != "" {
		all = append(all, s.agent(s.cfg.Label))
	}
	return all
}

// agent returns the component of the Signature-Agent for a label.
func (s *Signer) agent(label string) Component {
	if s.cfg.AgentString {
		return field("signature-agent")
	}
	return Component{id: `"signature-agent";key="` + label + `"`, name: "signature-agent", key: label}
}

// complete adds the fields other than the signature.
func (s *Signer) complete(m *message, choice Choice) {
	m.added = make([]signing.Field, 0, len(s.headers))
	if slices.ContainsFunc(choice.components, func(c Component) bool { return c.name == "content-digest" }) {
		m.added = append(m.added, signing.Field{Name: "Content-Digest", Value: digest(m.Body)})
	}
	if s.cfg.Agent != "" {
		value := `"` + s.cfg.Agent + `"`
		if !s.cfg.AgentString {
			value = choice.label + "=" + value
		}
		m.added = append(m.added, signing.Field{Name: "Signature-Agent", Value: value})
	}
}

// params returns the parameters of a signature, each after a semicolon. Their texts were checked before.
func (s *Signer) params(choice Choice, key *Key, at time.Time) string {
	p := make([]byte, 0, 256)
	for _, name := range choice.parameters {
		p = append(append(append(p, ';'), name...), '=')
		switch name {
		case "created":
			p = strconv.AppendInt(p, at.Unix(), 10)
		case "expires":
			p = strconv.AppendInt(p, at.Add(s.cfg.Lifetime).Unix(), 10)
		case "keyid":
			p = appendString(p, key.ID)
		case "alg":
			p = appendString(p, key.Algorithm)
		case "nonce":
			nonce := choice.nonce
			if nonce == "" {
				random := make([]byte, nonceBytes)
				_, _ = rand.Read(random) // never fails
				nonce = base64.RawURLEncoding.EncodeToString(random)
			}
			p = appendString(p, nonce)
		case "tag":
			p = appendString(p, choice.tag)
		}
	}
	return string(p)
}

// appendString appends a string in printable ASCII as a structured field has it (RFC 9651 section 4.1.6).
func appendString(to []byte, text string) []byte {
	to = append(to, '"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			to = append(to, '\\')
		}
		to = append(to, text[i])
	}
	return append(to, '"')
}

// attach signs a base and returns the fields of a message with the signature.
func attach(fields []signing.Field, label string, key *Key, text, input string) ([]signing.Field, error) {
	signature, err := key.sign(text)
	if err != nil {
		return nil, err
	}
	return append(fields, signing.Field{Name: "Signature-Input", Value: label + "=" + input},
		signing.Field{Name: "Signature", Value: label + "=:" + base64.StdEncoding.EncodeToString(signature) + ":"}), nil
}
