// Command pythontypes writes what the Python package has of the contract, from server/descriptor.binpb.
//
// Run it in the root of the repository.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	for name, content := range map[string][]byte{
		"descriptor.binpb":    descriptor,
		"service-config.json": config,
		"policies.py":         pythonRequests(file),
		"contract.pyi":        pythonMessages(file),
	} {
		if err := os.WriteFile(filepath.Join(pythonPackage, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pythonRequests returns a module with a TypedDict for each message of a request, and a
// Literal for each of their enums.
func pythonRequests(file protoreflect.FileDescriptor) []byte {
	var messages []protoreflect.MessageDescriptor
	var enums []protoreflect.EnumDescriptor
	var visit func(protoreflect.MessageDescriptor)
	visit = func(message protoreflect.MessageDescriptor) {
		if pythonScalar(message) != "" || slices.Contains(messages, message) {
			return
		}
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			if e := field.Enum(); e != nil && !slices.Contains(enums, e) {
				enums = append(enums, e)
			}
			if m := field.Message(); m != nil && !field.IsMap() {
				visit(m)
			}
		}
		messages = append(messages, message) // after those that it uses
	}
	visit(file.Messages().ByName("FetchRequest"))
	visit(file.Messages().ByName("ExplainRequest"))
	var b bytes.Buffer
	b.WriteString(`"""The policies of a request, as types. .ci/generated writes this file from fetch.proto. Durations are in
seconds, or timedeltas."""

from __future__ import annotations

import datetime
from typing import Iterable, Literal, Mapping, Sequence, Tuple, TypedDict, Union

Duration = Union[float, datetime.timedelta]
Headers = Union[Mapping[str, str], Iterable[Tuple[str, str]]]

`)
	for _, e := range enums {
		b.WriteString(pythonLiteral(e))
	}
	for _, message := range messages {
		name := string(message.Name())
		if name == "FetchRequest" {
			name = "Policies"
		}
		fields := inputFields(message)
		fmt.Fprintf(&b, "\n\nclass %s(TypedDict, total=False):\n%s", name, pythonDocstring(message, fields))
		for _, field := range fields {
			if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() && oneof.Fields().Get(0) == field {
				b.WriteString("    # At most one of " + fieldNames(oneof.Fields()) + ".\n")
			}
			fmt.Fprintf(&b, "    %s: %s\n", field.Name(), pythonInput(field))
		}
	}
	return b.Bytes()
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

func fieldNames(fields protoreflect.FieldDescriptors) string {
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = string(fields.Get(i).Name())
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

// pythonMessages returns the stub of module contract.
func pythonMessages(file protoreflect.FileDescriptor) []byte {
	var b bytes.Buffer
	b.WriteString(`# .ci/generated writes this file from fetch.proto, whose comments say what each field means.
# The value of an enum is a number; enum_name returns its name.

import datetime
from typing import Any, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Type, TypeVar, overload

T = TypeVar("T")

class Message:
    def __init__(self, **fields: Any) -> None: ...
    @classmethod
    def FromString(cls: Type[T], data: bytes) -> T: ...
    def SerializeToString(self) -> bytes: ...
    def ByteSize(self) -> int: ...
    def HasField(self, name: str) -> bool: ...
    def SetInParent(self) -> None: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, name: str) -> Optional[str]: ...
    def CopyFrom(self: T, other: T) -> None: ...
    DESCRIPTOR: Any

class Repeated(Generic[T]):
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> List[T]: ...
    def __iter__(self) -> Iterator[T]: ...
    def add(self, **fields: Any) -> T: ...
    def append(self, value: T) -> None: ...
    def extend(self, values: Iterable[T]) -> None: ...

class Duration(Message):
    seconds: int
    nanos: int
    def ToNanoseconds(self) -> int: ...
    def ToMilliseconds(self) -> int: ...
    def ToTimedelta(self) -> datetime.timedelta: ...

class Timestamp(Message):
    seconds: int
    nanos: int
    def ToDatetime(self, tzinfo: Optional[datetime.tzinfo] = ...) -> datetime.datetime: ...

def enum_name(message: Message, field: str) -> str: ...
def short_names(enum: Any) -> Dict[int, str]: ...
def message_class(name: str) -> Any: ...

SERVICE: str
`)
	for i := range file.Messages().Len() {
		message := file.Messages().Get(i)
		fmt.Fprintf(&b, "\nclass %s(Message):\n", message.Name())
		if message.Fields().Len() == 0 {
			b.WriteString("    pass\n")
		}
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			one := pythonKind(field)
			if field.Message() != nil {
				one = string(field.Message().Name())
			}
			switch {
			case field.IsMap():
				fmt.Fprintf(&b, "    %s: Mapping[str, str]\n", field.Name())
			case field.IsList():
				fmt.Fprintf(&b, "    %s: Repeated[%s]\n", field.Name(), one)
			case field.Message() != nil:
				fmt.Fprintf(&b, "    @property\n    def %s(self) -> %s: ...\n", field.Name(), one)
			default:
				fmt.Fprintf(&b, "    %s: %s\n", field.Name(), one)
			}
		}
	}
	return b.Bytes()
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
