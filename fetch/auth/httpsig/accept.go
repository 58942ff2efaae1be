package httpsig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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
// log: Label has only lower-case letters, digits and _-.*, and what Reason quotes of the
// field is short and in printable ASCII.
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
	key, err := current(s.cfg.Keys, request.Time, c)
	if err != nil {
		return Choice{}, s.noKey(c, err)
	}
	if key.ID == "" && slices.Contains(c.parameters, "keyid") {
		return Choice{}, errors.New("the key has no id")
	}
	bodyless := *request // the digest of any body can be signed
	bodyless.Body = nil
	m := &message{Message: &bodyless}
	s.complete(m, c)
	if _, _, err := base(c.components, "", m.value); err != nil {
		return Choice{}, fmt.Errorf("cannot %w", err) // it has no value of the request
	}
	return c, nil
}

// fits reports whether a key is one that the choice asks for.
func (c Choice) fits(k *Key) bool {
	return (c.key == "" || k.ID == c.key) && (c.algorithm == "" || k.Algorithm == c.algorithm)
}

// noKey returns an error that says why no key signs as an origin asks: noneValid, unless no key fits.
func (s *Signer) noKey(c Choice, noneValid error) error {
	has := func(fits func(*Key) bool) bool { return slices.ContainsFunc(s.cfg.Keys, fits) }
	switch {
	case !has(Choice{key: c.key}.fits):
		return fmt.Errorf("keyid %s is that of no key in key-files", quoted(c.key))
	case !has(Choice{algorithm: c.algorithm}.fits):
		return fmt.Errorf("alg %s is that of no key in key-files", quoted(c.algorithm))
	case !has(c.fits):
		return fmt.Errorf("alg %s is not that of the key with keyid %s", quoted(c.algorithm), quoted(c.key))
	}
	return noneValid
}

// maxQuoted is the maximum size of a text of an origin in a reason.
const maxQuoted = 60

// quoted returns a text of an origin for a reason. It leaves out one that is long or not in printable ASCII.
func quoted(text string) string {
	if len(text) > maxQuoted || checkText(text) != nil {
		return "(not shown)"
	}
	return strconv.Quote(text)
}

// quotedItem is [quoted] for an item. A string has quotes already.
func quotedItem(item httpsfv.Item) string {
	id, err := httpsfv.Marshal(item)
	if _, ok := item.Value.(string); !ok || err != nil || len(id) > maxQuoted || checkText(id) != nil {
		return "(not shown)"
	}
	return id
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
		case err != nil:
			return fmt.Errorf("component %s cannot be covered", quotedItem(item))
		case !slices.ContainsFunc(allowed, same):
			return fmt.Errorf("component %s is none of components, optional and accept-components", quotedItem(item))
		case slices.ContainsFunc(c.components, same):
			return fmt.Errorf("component %s is asked for twice", quotedItem(item))
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
	if !slices.Contains(parameters, name) {
		return fmt.Errorf("parameter %s is unknown", quoted(name))
	}
	if !ok || text == "" || len(text) > maxText {
		return fmt.Errorf("parameter %s is not a string of 1 to %d characters", name, maxText)
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
		switch {
		case text == s.cfg.Tag:
		case s.cfg.Profile != "":
			return fmt.Errorf("tag %s is not that of the profile %s", quoted(text), s.cfg.Profile)
		case !slices.Contains(s.cfg.AcceptTags, text):
			return fmt.Errorf("tag %s is none of tag and accept-tags", quoted(text))
		}
		c.tag = text
	}
	return nil
}

// nonceCharacters are those of base64, base64url and tokens. A nonce is text of the origin
// inside a signature, so it cannot be a sentence.
const nonceCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="
