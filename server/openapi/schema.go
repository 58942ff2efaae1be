package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// requests and answers are the messages that the paths use.
var (
	requests = []protoreflect.Name{"FetchRequest", "ExplainRequest"}
	answers  = []protoreflect.Name{"FetchResponse", "FetchUnaryResponse", "ExplainResponse"}
)

// schemas makes the schemas of messages and enums.
//
// A message that occurs in requests and in answers has two schemas, because only answers must have the
// fields with default values. The one for answers is called MESSAGEOutput.
type schemas struct {
	contract
	made object
	sent map[protoreflect.FullName]bool // messages with a schema for requests
	err  error
}

// schemas returns the schemas of all messages and enums that requests and answers use.
func (c contract) schemas() (object, error) {
	s := &schemas{contract: c, sent: make(map[protoreflect.FullName]bool)}
	for _, name := range requests {
		s.reference(c.Messages().ByName(name), false)
	}
	for _, name := range answers {
		s.reference(c.Messages().ByName(name), true)
	}
	return s.made, s.err
}

// reference returns a reference to the schema of a message or an enum, and makes it on first use.
func (s *schemas) reference(d protoreflect.Descriptor, answer bool) member {
	name := string(d.Name())
	message, isMessage := d.(protoreflect.MessageDescriptor)
	enum, _ := d.(protoreflect.EnumDescriptor)
	if isMessage && answer && s.sent[d.FullName()] {
		name += "Output"
	}
	ours := d.ParentFile().Path() == s.Path() // api.yaml has those of google.protobuf
	if ours && s.made.get(name) == nil {
		at := len(s.made)
		s.made = append(s.made, member{name, object{}}) // a message may contain itself
		if isMessage {
			s.sent[d.FullName()] = s.sent[d.FullName()] || !answer
			s.made[at].value = s.message(message, answer)
		} else {
			s.made[at].value = s.enum(enum)
		}
	}
	return member{"$ref", "#/components/schemas/" + name}
}

func (s *schemas) enum(d protoreflect.EnumDescriptor) object {
	var names []string
	text := s.comment(d) + "\n"
	for i := range d.Values().Len() {
		value := d.Values().Get(i)
		names = append(names, string(value.Name()))
		text += fmt.Sprintf("\n* `%s`: %s", value.Name(), s.comment(value))
	}
	return object{{"description", text}, {"type", "string"}, {"enum", names}}
}

// message returns the schema of a message. If the message has a oneof, there is a schema for each of
// its members, and in a request one without them unless the comment says that exactly one is set.
func (s *schemas) message(d protoreflect.MessageDescriptor, answer bool) object {
	var always, choices []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		if isChoice(field) {
			choices = append(choices, field)
		} else {
			always = append(always, field)
		}
	}
	text := object{{"description", s.comment(d)}}
	if choices == nil {
		return append(text, s.fields(always, nil, answer)...)
	}
	exactlyOne := strings.Contains(s.comment(choices[0].ContainingOneof()), "Exactly one is set.")
	if answer && !exactlyOne { // later versions may add members, so none excludes another here
		return append(text, s.fields(append(always, choices...), nil, answer)...)
	}
	var variants []object
	for _, field := range choices {
		variant := s.fields(append(always[:len(always):len(always)], field), field, answer)
		variants = append(variants, append(object{{"title", string(field.Name())}}, variant...))
	}
	if !exactlyOne {
		variants = append(variants, append(object{{"title", "no " + string(choices[0].ContainingOneof().Name())}}, s.fields(always, nil, answer)...))
	}
	return append(text, member{"oneOf", variants})
}

// isChoice reports whether a field is one of several that exclude each other.
func isChoice(d protoreflect.FieldDescriptor) bool {
	oneof := d.ContainingOneof()
	return oneof != nil && !oneof.IsSynthetic()
}

// fields returns the schema of an object with these fields, of which chosen is required.
func (s *schemas) fields(fields []protoreflect.FieldDescriptor, chosen protoreflect.FieldDescriptor, answer bool) object {
	properties, required := make(object, 0, len(fields)), []protoreflect.Name(nil)
	for _, field := range fields {
		text := s.comment(field)
		properties = append(properties, member{string(field.Name()), append(object{{"description", text}}, s.field(field, answer)...)})
		if field == chosen || answer && !field.HasPresence() || !answer && strings.Contains(" "+text, " Required.") {
			required = append(required, field.Name())
		}
	}
	o := object{{"type", "object"}, {"properties", properties}}
	if !answer { // later versions may add fields to answers
		o = append(o, member{"additionalProperties", false})
	}
	if required != nil {
		o = append(o, member{"required", required})
	}
	return o
}

// field returns the schema of a field's values.
func (s *schemas) field(d protoreflect.FieldDescriptor, answer bool) object {
	switch {
	case d.IsMap():
		return object{{"type", "object"}, {"additionalProperties", s.single(d.MapValue(), answer)}}
	case d.IsList():
		return object{{"type", "array"}, {"items", s.single(d, answer)}}
	default:
		return s.single(d, answer)
	}
}

func (s *schemas) single(d protoreflect.FieldDescriptor, answer bool) object {
	switch d.Kind() {
	case protoreflect.MessageKind:
		return object{s.reference(d.Message(), answer)}
	case protoreflect.EnumKind:
		return object{s.reference(d.Enum(), answer)}
	case protoreflect.BoolKind:
		return object{{"type", "boolean"}}
	case protoreflect.StringKind:
		return object{{"type", "string"}}
	case protoreflect.BytesKind:
		return object{{"type", "string"}, {"contentEncoding", "base64"}}
	case protoreflect.Int32Kind:
		return object{{"type", "integer"}, {"format", "int32"}}
	case protoreflect.Int64Kind:
		return long("int64", "^-?[0-9]+$", answer)
	case protoreflect.Uint64Kind:
		return long("uint64", "^[0-9]+$", answer)
	case protoreflect.DoubleKind:
		return object{{"type", "number"}, {"format", "double"}}
	default:
		s.err = fmt.Errorf("%s: a schema for %s is missing", d.FullName(), d.Kind())
		return nil
	}
}

// long returns the schema of a number that a double cannot hold. Answers have it as a string.
func long(format, pattern string, answer bool) object {
	if answer {
		return object{{"type", "string"}, {"format", format}, {"pattern", pattern}}
	}
	return object{{"type", []string{"string", "integer"}}, {"format", format}, {"pattern", pattern}}
}
