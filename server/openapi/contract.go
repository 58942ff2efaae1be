package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"fetchd/internal/jsontext"
)

// contract is the file of the contract, with its comments.
type contract struct{ protoreflect.FileDescriptor }

// read parses api.yaml. A tag takes a value from the contract:
//
//	!summary METHOD    the first sentence of the method's comment
//	!comment METHOD    the whole comment
//	!request/MESSAGE   an example of a request; a field that MESSAGE does not have is an error
//	!answer/MESSAGE    an example of an answer, to which the fields with default values are added
func (c contract) read(text []byte) (object, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	value, err := c.value(document.Content[0])
	if err != nil {
		return nil, err
	}
	page, ok := value.(object)
	if !ok {
		return nil, errors.New("it is not a mapping")
	}
	return page, nil
}

func (c contract) value(n *yaml.Node) (any, error) {
	use, message, isExample := strings.Cut(n.Tag, "/")
	switch {
	case n.Tag == "!summary" || n.Tag == "!comment":
		return c.methodText(n)
	case isExample:
		return c.example(n, use == "!answer", message)
	}
	switch n.Kind {
	case yaml.MappingNode:
		o := make(object, 0, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			value, err := c.value(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			o = append(o, member{n.Content[i].Value, value})
		}
		return o, nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i := range list {
			value, err := c.value(n.Content[i])
			if err != nil {
				return nil, err
			}
			list[i] = value
		}
		return list, nil
	case yaml.AliasNode:
		return c.value(n.Alias)
	default:
		var v any
		err := n.Decode(&v)
		return v, err
	}
}

func (c contract) methodText(n *yaml.Node) (string, error) {
	service := c.Services().Get(0)
	method := service.Methods().ByName(protoreflect.Name(n.Value))
	if method == nil {
		return "", fmt.Errorf("line %d: %s has no method %q", n.Line, service.Name(), n.Value)
	}
	text := c.comment(method)
	if n.Tag == "!summary" {
		text, _, _ = strings.Cut(strings.ReplaceAll(text, "\n", " "), ". ")
		return strings.TrimSuffix(text, "."), nil
	}
	return text, nil
}

// example returns the message in n as an example. If fill is set, it adds the fields with default
// values.
func (c contract) example(n *yaml.Node, fill bool, name string) (any, error) {
	message := c.Messages().ByName(protoreflect.Name(name))
	if message == nil {
		return nil, fmt.Errorf("line %d: no message %q", n.Line, name)
	}
	plain := *n
	plain.Tag = ""
	var short any
	if err := plain.Decode(&short); err != nil {
		return nil, err
	}
	text, err := json.Marshal(short)
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(message)
	if err := protojson.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	if !fill {
		return c.value(&plain)
	}
	if text, err = jsontext.MarshalMessage(m); err != nil {
		return nil, err
	}
	return c.read(text) // JSON is YAML
}

// comment returns the comment of a declaration as Markdown, with one line a paragraph.
func (c contract) comment(d protoreflect.Descriptor) string {
	var out strings.Builder
	for line := range strings.Lines(c.SourceLocations().ByDescriptor(d).LeadingComments) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			out.WriteString("\n\n")
			continue
		case out.Len() > 0 && !strings.HasSuffix(out.String(), "\n"):
			out.WriteByte(' ')
		}
		out.WriteString(line)
	}
	return strings.TrimSpace(out.String())
}
