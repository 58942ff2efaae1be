package httpsig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"fetchd/fetch/signing"
)

// Limits on an Accept-Signature field. Its sender may be hostile.
const (
	maxAccept  = 4 << 10 // bytes
	maxMembers = 8
)

// Ignored is a signature that an origin asks for and does not get. Its texts are safe to
// log: Label has only lower-case letters, digits and _-.*, and Reason has nothing of the
// field.
type Ignored struct{ Label, Reason string }

// String implements fmt.Stringer.
func (i Ignored) String() string { return i.Label + ": " + i.Reason }

// Choose returns the first signature of an Accept-Signature field (RFC 9421 section 5) that
// the configuration allows, and what it ignored. It may only ask for components, tags, keys
// and algorithms of the configuration, and its components must include @authority or
// @target-uri, so that the signature is of no use elsewhere. The request that the field answers
// must have the components. If ok is false, there is none.
func (s *Signer) Choose(accept []string, request *signing.Message) (choice Choice, ignored []Ignored, ok bool) {
	size := 0
	for _, value := range accept {
		size += len(value) + 2
	}
	if size > maxAccept {
		return choice, []Ignored{{"*", fmt.Sprintf("the field is longer than %d bytes", maxAccept)}}, false
	}
	d, err := httpsfv.UnmarshalDictionary(accept)
	if err != nil {
		return choice, []Ignored{{"*", "the field is not a dictionary of signatures"}}, false
	}
	for i, label := range d.Names() {
		if i == maxMembers {
			return choice, append(ignored, Ignored{"*", fmt.Sprintf("more than %d signatures", maxMembers)}), ok
		}
		if ok {
			ignored = append(ignored, Ignored{label, "a request has one signature"})
			continue
		}
		member, _ := d.Get(label)
		var err error
		if choice, err = s.allow(label, member, request); err != nil {
			ignored = append(ignored, Ignored{label, fmt.Sprint(err)})
			continue
		}
		ok = true
	}
	return choice, ignored, ok
}

// allow returns what a member of Accept-Signature asks for, if the configuration allows it.
func (s *Signer) allow(label string, member httpsfv.Member, request *signing.Message) (Choice, error) {
	list, ok := member.(httpsfv.InnerList)
	c := Choice{label: label, tag: s.cfg.Tag, parameters: slices.Clip(s.cfg.Parameters)}
	switch {
	case !ok:
		return Choice{}, errors.New("it is not a list of components")
	case len(label) > maxText || len(list.Items) > maxComponents:
		return Choice{}, errors.New("it is too long")
	}
	if err := s.allowComponents(&c, list.Items); err != nil {
		return Choice{}, err
	}
	for _, name := range list.Params.Names() {
		value, _ := list.Params.Get(name)
		if err := s.allowParameter(&c, name, value); err != nil {
			return Choice{}, err
		}
		if !slices.Contains(c.parameters, name) {
			c.parameters = append(c.parameters, name)
		}
	}
	key := newest(s.cfg.Keys, request.Time, func(k *Key) bool {
		return (c.key == "" || k.ID == c.key) && (c.algorithm == "" || k.Algorithm == c.algorithm)
	})
	if key == nil {
		return Choice{}, errors.New("its key or algorithm is not configured, or not valid now")
	}
	if key.ID == "" && slices.Contains(c.parameters, "keyid") {
		return Choice{}, errors.New("the key has no id")
	}
	bodyless := *request // the digest of any body can be signed
	bodyless.Body = nil
	m := &message{Message: &bodyless}
	s.complete(m, c)
	if _, _, err := base(c.components, "", m.value); err != nil {
		return Choice{}, errors.New("the request lacks a component, or has one that cannot be signed")
	}
	return c, nil
}

// allowComponents checks the components that an origin asks for.
func (s *Signer) allowComponents(c *Choice, items []httpsfv.Item) error {
	allowed := slices.Concat(s.cfg.Components, s.cfg.Optional, s.cfg.Accept)
	if s.cfg.Agent != "" {
		allowed = append(allowed, s.agent(c.label))
	}
	for _, item := range items {
		asked, err := componentOf(item)
		same := func(o Component) bool { return o.id == asked.id }
		switch {
		case err != nil || !slices.ContainsFunc(allowed, same):
			return errors.New("it asks for a component that is not configured")
		case slices.ContainsFunc(c.components, same):
			return errors.New("it asks for a component twice")
		}
		c.components = append(c.components, asked)
	}
	if !binds(c.components) {
		return errors.New("it covers neither @authority nor @target-uri")
	}
	if s.cfg.Agent != "" && !slices.ContainsFunc(c.components, func(o Component) bool { return o.id == s.agent(c.label).id }) {
		return errors.New("it does not cover Signature-Agent")
	}
	return nil
}

// allowParameter checks a parameter that an origin asks for.
func (s *Signer) allowParameter(c *Choice, name string, value any) error {
	if name == "created" || name == "expires" {
		if value != true {
			return errors.New("created and expires are the signer's to set")
		}
		return nil
	}
	text, ok := value.(string)
	if !ok || text == "" || len(text) > maxText {
		return errors.New("a parameter is unknown, is too long, or has a wrong value")
	}
	switch name {
	case "nonce":
		if strings.Trim(text, nonceCharacters) != "" {
			return errors.New("its nonce has other characters than letters, digits and -._~+/=")
		}
		c.nonce = text
	case "alg":
		c.algorithm = text
	case "keyid":
		c.key = text
	case "tag":
		if text != s.cfg.Tag && !slices.Contains(s.cfg.AcceptTags, text) || s.cfg.Profile != "" && text != s.cfg.Tag {
			return errors.New("its tag is not configured")
		}
		c.tag = text
	default:
		return errors.New("a parameter is unknown, is too long, or has a wrong value")
	}
	return nil
}

// nonceCharacters are those of base64, base64url and tokens. A nonce is text of the origin
// inside a signature, so it cannot be a sentence.
const nonceCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="
