package httpsig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
	"golang.org/x/net/http/httpguts"
)

// maxComponent is the maximum size of a component identifier.
const maxComponent = 256

// Component identifies a part of a request that a signature covers (RFC 9421 section 2).
type Component struct {
	id     string // as in Signature-Input: "x-dict";key="a"
	name   string
	key    string // a member of a dictionary; empty means the whole field
	query  string // the encoded name of a query parameter
	sf, bs bool
}

// String returns the identifier as in a Signature-Input field.
func (c Component) String() string { return c.id }

// derived are the components of requests that are not fields.
var derived = []string{"@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query", "@query-param"}

// dictionaries and lists are fields whose structured type is known, for the parameter sf.
var (
	dictionaries = []string{"content-digest", "repr-digest", "want-content-digest", "want-repr-digest", "priority", "signature-agent"}
	lists        = []string{"sec-ch-ua", "sec-ch-ua-full-version-list"}
)

// notCovered are fields that a signature cannot cover, because intermediaries remove them
// or because they belong to signatures.
var notCovered = []string{"connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade", "signature", "signature-input", "accept-signature"}

// ParseComponent parses a component identifier, such as @authority,
// @query-param;name="id" or "x-dict";key="a". The quotes around the name are optional.
func ParseComponent(text string) (Component, error) {
	given := text
	if len(text) > maxComponent {
		return Component{}, fmt.Errorf("a component is longer than %d bytes", maxComponent)
	}
	if !strings.HasPrefix(text, `"`) {
		name, params, more := strings.Cut(text, ";")
		text = `"` + name + `"`
		if more {
			text += ";" + params
		}
	}
	item, err := httpsfv.UnmarshalItem([]string{text})
	if err != nil {
		return Component{}, fmt.Errorf("component %q: is not a name with parameters, such as @authority or x-dict;key=\"a\"", given)
	}
	c, err := componentOf(item)
	if err != nil {
		return Component{}, fmt.Errorf("component %q: %w", given, err)
	}
	return c, nil
}

// componentOf returns the component that a structured item identifies.
func componentOf(item httpsfv.Item) (Component, error) {
	name, ok := item.Value.(string)
	if !ok {
		return Component{}, errors.New("is not a string")
	}
	id, err := httpsfv.Marshal(item)
	if err != nil {
		return Component{}, errors.New("has no canonical form")
	}
	c := Component{id: id, name: name}
	for _, p := range item.Params.Names() {
		value, _ := item.Params.Get(p)
		switch text, isText := value.(string); {
		case p == "sf" && value == true:
			c.sf = true
		case p == "bs" && value == true:
			c.bs = true
		case p == "key" && isText && text != "":
			c.key = text
		case p == "name" && isText && text != "" && name == "@query-param":
			c.query = text
		case p == "tr" || p == "req":
			return Component{}, fmt.Errorf("parameter %s is not for requests", p)
		default:
			return Component{}, fmt.Errorf("parameter %q is unknown here, or has a wrong value", p)
		}
	}
	return c, c.check()
}

// check returns an error if a request cannot have the component.
func (c Component) check() error {
	if strings.HasPrefix(c.name, "@") {
		return c.checkDerived()
	}
	switch {
	case !httpguts.ValidHeaderFieldName(c.name) || strings.ToLower(c.name) != c.name:
		return errors.New("is not the name of a field in lower case")
	case slices.Contains(notCovered, c.name):
		return errors.New("is a field that a signature cannot cover")
	case c.name == "host":
		return errors.New("use @authority, which HTTP/2 has too")
	case c.bs && (c.sf || c.key != ""):
		return errors.New("bs cannot be combined with sf and key")
	case c.sf && c.key != "":
		return errors.New("sf is part of key: remove it")
	case c.sf && !slices.Contains(dictionaries, c.name) && !slices.Contains(lists, c.name):
		return errors.New("sf: the structured type of this field is not known: remove it, or use bs")
	}
	return nil
}

func (c Component) checkDerived() error {
	switch {
	case !slices.Contains(derived, c.name):
		return fmt.Errorf("is unknown: give a field, or one of %s", strings.Join(derived, ", "))
	case c.sf || c.bs || c.key != "":
		return errors.New("sf, bs and key are for fields")
	case (c.name == "@query-param") != (c.query != ""):
		return errors.New("give @query-param a name: @query-param;name=\"id\"")
	case c.query != "" && !encoded(c.query):
		return errors.New("the name of a query parameter is percent-encoded: a%20b")
	}
	return nil
}
