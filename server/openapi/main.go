// Command openapi generates server/internal/web/openapi.json, the description of the HTTP API for programs.
// api.yaml has the paths. The schemas of messages are made from the descriptor of the contract
// and its comments.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

//go:embed api.yaml
var api []byte

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run() error {
	raw, err := os.ReadFile("server/descriptor.binpb")
	if err != nil {
		return err
	}
	text, err := generate(api, raw)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// generate returns the description, from the text of api.yaml and a descriptor set.
func generate(api, descriptor []byte) ([]byte, error) {
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(descriptor, set); err != nil {
		return nil, fmt.Errorf("descriptor: %w", err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("descriptor: %w", err)
	}
	file, err := files.FindFileByPath("fetchd/v1/fetch.proto")
	if err != nil {
		return nil, err
	}
	page, err := contract{file}.read(api)
	if err != nil {
		return nil, fmt.Errorf("api.yaml: %w", err)
	}
	made, err := contract{file}.schemas()
	if err != nil {
		return nil, err
	}
	components, _ := page.get("components").(object)
	schemas, _ := components.get("schemas").(object)
	schemas = append(schemas, made...)
	slices.SortFunc(schemas, func(a, b member) int { return strings.Compare(a.name, b.name) })
	components.set("schemas", schemas)
	var out bytes.Buffer
	enc := newEncoder(&out)
	enc.SetIndent("", " ")
	err = enc.Encode(page)
	return out.Bytes(), err
}

// newEncoder returns an encoder that leaves <, > and & in texts as they are.
func newEncoder(out *bytes.Buffer) *json.Encoder {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := newEncoder(&out)
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := enc.Encode(m.name); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// get returns the value of a member, or nil.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// set changes the value of an existing member.
func (o object) set(name string, value any) {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
		}
	}
}
