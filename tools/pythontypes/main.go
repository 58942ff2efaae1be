// Command pythontypes writes what the Python package has of the contract, from server/descriptor.binpb.
//
// Run it in the root of the repository.
package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	pythonPackage = "client/python/src/fetchd"
	contract      = "fetchd.v1."
	pythonWidth   = 100
)

// templates are those of a module with a TypedDict for each message of a request and a Literal for each of their enums,
// and of the stub of module contract.
//
//go:embed *.tmpl
var templates embed.FS

var modules = template.Must(template.New("").Funcs(template.FuncMap{
	"className": className, "docstring": pythonDocstring, "exclusive": exclusive, "input": pythonInput, "inputFields": inputFields, "literal": pythonLiteral,
	"stub": pythonStub,
}).ParseFS(templates, "*.tmpl"))

func main() {
	log.SetFlags(0)
	if err := write(); err != nil {
		log.Fatal("pythontypes: ", err)
	}
}

// write writes the descriptor without comments, the types of requests, and the types of messages.
func write() error {
	raw, err := os.ReadFile("server/descriptor.binpb")
	if err != nil {
		return err
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(raw, set); err != nil {
		return err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return err
	}
	file, err := files.FindFileByPath("fetchd/v1/fetch.proto")
	if err != nil {
		return err
	}
	for _, file := range set.GetFile() {
		file.SourceCodeInfo = nil
		// Options for other languages.
		file.Options = nil
	}
	descriptor, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return err
	}
	config, err := os.ReadFile("deploy/grpc/service-config.json")
	if err != nil {
		return err
	}
	sent := new(requests)
	sent.add(file.Messages().ByName("FetchRequest"))
	sent.add(file.Messages().ByName("ExplainRequest"))
	var policies, stubs bytes.Buffer
	if err := errors.Join(modules.ExecuteTemplate(&policies, "policies.py.tmpl", sent), modules.ExecuteTemplate(&stubs, "contract.pyi.tmpl", file)); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"descriptor.binpb":    descriptor,
		"service-config.json": config,
		"policies.py":         policies.Bytes(),
		"contract.pyi":        stubs.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(pythonPackage, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// requests are the messages of requests, each after those that it uses, and their enums.
type requests struct {
	Messages []protoreflect.MessageDescriptor
	Enums    []protoreflect.EnumDescriptor
}

func (r *requests) add(message protoreflect.MessageDescriptor) {
	if pythonScalar(message) != "" || slices.Contains(r.Messages, message) {
		return
	}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if e := field.Enum(); e != nil && !slices.Contains(r.Enums, e) {
			r.Enums = append(r.Enums, e)
		}
		if m := field.Message(); m != nil && !field.IsMap() {
			r.add(m)
		}
	}
	r.Messages = append(r.Messages, message)
}

// className returns the name of a request in Python.
func className(message protoreflect.MessageDescriptor) string {
	if message.Name() == "FetchRequest" {
		return "Policies"
	}
	return string(message.Name())
}

// inputFields returns the fields of a request, without those that the callers of the package pass as arguments.
func inputFields(message protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	arguments := []protoreflect.Name{"url", "method", "headers", "body"}
	var fields []protoreflect.FieldDescriptor
	for i := range message.Fields().Len() {
		if field := message.Fields().Get(i); message.Name() != "FetchRequest" || !slices.Contains(arguments, field.Name()) {
			fields = append(fields, field)
		}
	}
	return fields
}

// pythonDocstring returns the docstring of a request, with the comments of its fields.
func pythonDocstring(message protoreflect.MessageDescriptor, fields []protoreflect.FieldDescriptor) string {
	text := `    """` + firstSentence(message)
	if len(fields) == 0 {
		return text + "\"\"\"\n"
	}
	text += "\n\n"
	for _, field := range fields {
		text += wrapped(fmt.Sprintf("%s: %s", field.Name(), strings.ReplaceAll(commentOf(field), `\`, `\\`)))
	}
	return text + "    \"\"\"\n\n"
}

// exclusive returns the names of the fields of which a request has at most one, if the field is the first of them.
func exclusive(field protoreflect.FieldDescriptor) string {
	oneof := field.ContainingOneof()
	if oneof == nil || oneof.IsSynthetic() || oneof.Fields().Get(0) != field {
		return ""
	}
	names := make([]string, oneof.Fields().Len())
	for i := range names {
		names[i] = string(oneof.Fields().Get(i).Name())
	}
	return strings.Join(names, ", ")
}

// pythonLiteral returns the definition of an enum without its zero value, which means "unset".
func pythonLiteral(e protoreflect.EnumDescriptor) string {
	var names []string
	for i := range e.Values().Len() {
		if value := e.Values().Get(i); value.Number() != 0 {
			names = append(names, fmt.Sprintf("%q", shortName(e, value)))
		}
	}
	line := fmt.Sprintf("%s = Literal[%s]\n", e.Name(), strings.Join(names, ", "))
	if len(line) <= pythonWidth {
		return line
	}
	return fmt.Sprintf("%s = Literal[\n    %s,\n]\n", e.Name(), strings.Join(names, ",\n    "))
}

// shortName returns the name of a value without the prefix of its enum, in lower case.
func shortName(e protoreflect.EnumDescriptor, value protoreflect.EnumValueDescriptor) string {
	var prefix strings.Builder
	for i, r := range string(e.Name()) {
		if i > 0 && unicode.IsUpper(r) {
			prefix.WriteByte('_')
		}
		prefix.WriteRune(unicode.ToUpper(r))
	}
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix.String()+"_"))
}

// pythonInput returns the type of a field in a request.
func pythonInput(field protoreflect.FieldDescriptor) string {
	if field.IsMap() {
		return "Mapping[str, str]"
	}
	var one string
	switch {
	case field.Enum() != nil:
		one = string(field.Enum().Name())
	case field.Message() == nil:
		one = pythonKind(field)
	case field.Message().Name() == "Header":
		return "Headers"
	default:
		if one = pythonScalar(field.Message()); one == "" {
			one = string(field.Message().Name())
		}
	}
	if field.IsList() {
		return "Sequence[" + one + "]"
	}
	return one
}

// pythonScalar returns the type that stands for a message in a request, if there is one.
func pythonScalar(message protoreflect.MessageDescriptor) string {
	switch message.FullName() {
	case "google.protobuf.Duration":
		return "Duration"
	case "google.protobuf.Timestamp":
		return "datetime.datetime"
	case contract + "Header":
		return "Tuple[str, str]"
	}
	return ""
}

func pythonKind(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return "bool"
	case protoreflect.StringKind:
		return "str"
	case protoreflect.BytesKind:
		return "bytes"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "float"
	}
	return "int"
}

// pythonStub returns the type of a field, or of an entry of a list, in an answer.
func pythonStub(field protoreflect.FieldDescriptor) string {
	if field.Message() != nil {
		return string(field.Message().Name())
	}
	return pythonKind(field)
}

// firstSentence returns the first sentence of the comment of a message on one line.
func firstSentence(message protoreflect.MessageDescriptor) string {
	first, _, _ := strings.Cut(commentOf(message), ". ")
	return strings.TrimSuffix(first, ".") + "."
}

// commentOf returns the comment of a declaration on one line.
func commentOf(d protoreflect.Descriptor) string {
	return strings.Join(strings.Fields(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments), " ")
}

// wrapped returns a paragraph of a docstring.
func wrapped(text string) string {
	var b strings.Builder
	line := "   "
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 100 {
			b.WriteString(line + "\n")
			line = "       "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}
