package tools

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// object is a JSON object.
type object = map[string]any

// schemaOf returns the JSON Schema of a message, as jsontext.MarshalMessage writes it. extra are
// further properties. Later services may add fields and enum values.
func schemaOf(d protoreflect.MessageDescriptor, extra object) object {
	s := schemas{}
	root := s.properties(d)
	for name, schema := range extra {
		root[name] = schema
	}
	return object{"type": "object", "properties": root, "$defs": s}
}

// schemas are the schemas of messages, by name.
type schemas object

func (s schemas) properties(d protoreflect.MessageDescriptor) object {
	properties := object{}
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		schema := s.single(field)
		switch {
		case field.IsMap():
			schema = object{"type": "object", "additionalProperties": s.single(field.MapValue())}
		case field.IsList():
			schema = object{"type": "array", "items": schema}
		}
		properties[string(field.Name())] = schema
	}
	return properties
}

func (s schemas) single(field protoreflect.FieldDescriptor) object {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return s.reference(field.Message())
	case protoreflect.EnumKind:
		return object{"type": []string{"string", "integer"}} // a number if its name is not known
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind:
		return object{"type": "integer"}
	case protoreflect.DoubleKind:
		return object{"type": "number"}
	default: // 64-bit numbers and bytes are strings too
		return object{"type": "string"}
	}
}

func (s schemas) reference(d protoreflect.MessageDescriptor) object {
	if d.ParentFile().Package() == "google.protobuf" { // Duration and Timestamp
		return object{"type": "string"}
	}
	name := string(d.Name())
	if s[name] == nil {
		s[name] = object{} // a message may contain itself
		s[name] = object{"type": "object", "properties": s.properties(d)}
	}
	return object{"$ref": "#/$defs/" + name}
}
