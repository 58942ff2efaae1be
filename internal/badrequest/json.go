package badrequest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/internal/typo"
)

// ReadJSON reads a message in JSON. what names the text in an error.
func ReadJSON(text []byte, m proto.Message, what string) error {
	err := protojson.Unmarshal(text, m)
	if err == nil {
		return nil
	}
	d := m.ProtoReflect().Descriptor()
	if faults := explainJSON(text, d); faults != nil {
		return faults
	}
	such := ""
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		such = ": send an object"
		if example, ok := wholeExamples[d.Name()]; ok {
			such += ", such as " + example
		}
	}
	return status.Errorf(codes.InvalidArgument, "%s is not a %s in JSON: %s%s", what, d.Name(), syntaxFault(err), such)
}

// wholeExamples are requests in JSON.
var wholeExamples = map[protoreflect.Name]string{
	"FetchRequest":   `{"url": "https://example.com/"}`,
	"ExplainRequest": `{"response": {"status_code": 503}}`,
}

// syntaxFault returns the text of a protojson error without its random spaces and its prefix. The
// text quotes the request, which may not be UTF-8 as a status must be.
func syntaxFault(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(fmt.Sprint(err), "\ufffd"), "\u00a0", " ")
	return fmt.Sprintf("%.200s", strings.TrimPrefix(strings.TrimPrefix(text, "proto:"), " "))
}

// jsonFaults finds what is wrong with a message in JSON that protojson rejected. protojson
// reports only the first fault, and not what it expects instead.
type jsonFaults struct {
	Violations
	in  *json.Decoder
	err error // the text is not JSON
}

// explainJSON returns the faults of text as a message. It returns nil if it finds none: then the
// fault is in the syntax.
func explainJSON(text []byte, m protoreflect.MessageDescriptor) error {
	f := &jsonFaults{in: json.NewDecoder(bytes.NewReader(text))}
	f.in.UseNumber()
	if first := f.next(); first != json.Delim('{') {
		return nil
	}
	f.message("", m)
	if f.err != nil {
		return nil
	}
	return f.Violations.Err()
}

// next returns the next token, or nil after an error.
func (f *jsonFaults) next() json.Token {
	if f.err != nil {
		return nil
	}
	token, err := f.in.Token()
	f.err = err
	return token
}

// another reports whether the list or object has another entry. If not, it reads its end.
func (f *jsonFaults) another() bool {
	if f.err != nil {
		return false
	}
	if !f.in.More() {
		f.next()
		return false
	}
	return true
}

// skip reads the rest of a value that starts with token. It does not recurse.
func (f *jsonFaults) skip(token json.Token) {
	for depth := 0; ; token = f.next() {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 || f.err != nil {
			return
		}
	}
}

// full reports whether further violations are only counted.
func (f *jsonFaults) full() bool { return f.bytes >= MaxBytes }

// message checks the fields of an object. Its depth is that of the contract.
func (f *jsonFaults) message(path string, m protoreflect.MessageDescriptor) {
	seen := make(map[protoreflect.FieldNumber]bool)
	chosen := make(map[protoreflect.OneofDescriptor]protoreflect.Name)
	for f.another() {
		key, _ := f.next().(string)
		fd := m.Fields().ByJSONName(key)
		if fd == nil {
			fd = m.Fields().ByTextName(key)
		}
		if fd == nil {
			f.unknown(path, key, m)
			f.skip(f.next())
			continue
		}
		at := join(path, string(fd.Name()))
		if seen[fd.Number()] {
			f.Add(at, "is given twice: give it once")
			f.skip(f.next())
			continue
		}
		seen[fd.Number()] = true
		set := f.field(at, fd)
		if oneof := fd.ContainingOneof(); set && oneof != nil && chosen[oneof] != "" {
			f.Add(at, "is set together with %s: give one of the two", chosen[oneof])
		} else if set && oneof != nil {
			chosen[oneof] = fd.Name()
		}
	}
}

// unknown adds the violation of a name that the message does not have.
func (f *jsonFaults) unknown(path, key string, m protoreflect.MessageDescriptor) {
	if f.full() {
		f.Violations.more++
		return
	}
	names := make([]string, m.Fields().Len())
	for i := range names {
		names[i] = string(m.Fields().Get(i).Name())
	}
	at, near := join(path, fmt.Sprintf("%.60s", strings.ToValidUTF8(key, "?"))), ""
	if len(key) <= 60 {
		near = typo.Nearest(strings.ToLower(key), "", names)
	}
	if near != "" {
		f.Add(at, "is not a field of %s: did you mean %q?", m.Name(), near)
		return
	}
	f.Add(at, "is not a field of %s, which has %s", m.Name(), strings.Join(names, ", "))
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// field checks the value of a field, and reports whether it is set.
func (f *jsonFaults) field(path string, fd protoreflect.FieldDescriptor) (set bool) {
	token := f.next()
	switch {
	case token == nil: // null means unset
		return false
	case fd.IsMap():
		f.entries(path, fd, token)
	case fd.IsList():
		if token != json.Delim('[') {
			f.wrong(path, token, "a list", "["+example(fd)+"]")
			return true
		}
		for i := 0; f.another(); i++ {
			f.value(Indexed(path, i), fd, f.next())
		}
	default:
		f.value(path, fd, token)
	}
	return true
}

// entries checks a map, whose keys are text.
func (f *jsonFaults) entries(path string, fd protoreflect.FieldDescriptor, token json.Token) {
	if token != json.Delim('{') {
		f.wrong(path, token, "an object", `{"name": `+example(fd.MapValue())+`}`)
		return
	}
	for i := 0; f.another(); i++ {
		f.next() // the key
		f.value(Indexed(path, i), fd.MapValue(), f.next())
	}
}

// wrong adds the violation of a value with the wrong type.
func (f *jsonFaults) wrong(path string, token json.Token, want, such string) {
	f.Add(path, "is %s: give %s, such as %s", kindOf(token), want, such)
	f.skip(token)
}

// value checks one value.
func (f *jsonFaults) value(path string, fd protoreflect.FieldDescriptor, token json.Token) {
	text, isText := token.(string)
	number, isNumber := token.(json.Number)
	if isNumber {
		text = number.String()
	}
	such := example(fd)
	switch kind := fd.Kind(); kind {
	case protoreflect.MessageKind:
		f.object(path, fd.Message(), token, such)
	case protoreflect.StringKind:
		if !isText {
			f.wrong(path, token, "text in quotes", such)
		}
	case protoreflect.BytesKind:
		if !isText {
			f.wrong(path, token, "the bytes in base64", such+" for hello")
		} else if !isBase64(text) {
			f.Add(path, "is not base64: give the bytes in base64, such as %s for hello", such)
		}
	case protoreflect.BoolKind:
		if _, ok := token.(bool); !ok {
			f.wrong(path, token, "true or false, without quotes", such)
		}
	case protoreflect.EnumKind:
		f.enum(path, fd.Enum(), token, such)
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			f.wrong(path, token, "a number", such)
		}
	default:
		switch {
		case !isText && !isNumber:
			f.wrong(path, token, "a whole number", such)
		case !isWhole(text, kind):
			f.Add(path, "is %.40q: give a whole number that fits %s, such as %s", text, kind, such)
		}
	}
}

// object checks a message, a duration or a timestamp.
func (f *jsonFaults) object(path string, m protoreflect.MessageDescriptor, token json.Token, such string) {
	text, isText := token.(string)
	switch m.FullName() {
	case "google.protobuf.Duration":
		if number, ok := token.(json.Number); ok {
			text = number.String() + "s"
		}
		if isText && isJSON(text, new(durationpb.Duration)) {
			return
		}
		if d, err := time.ParseDuration(text); err == nil { // the caller means this one
			such = strconv.Quote(strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s")
		}
		if !isText {
			f.wrong(path, token, "seconds with the unit s in quotes", such)
			return
		}
		f.Add(path, "is %.40q: give seconds with the unit s, such as %s", text, such)
	case "google.protobuf.Timestamp":
		if !isText {
			f.wrong(path, token, "a time as in RFC 3339 in quotes", such)
		} else if !isJSON(text, new(timestamppb.Timestamp)) {
			f.Add(path, "is %.40q: give a time as in RFC 3339, such as %s", text, such)
		}
	default:
		if token != json.Delim('{') {
			f.wrong(path, token, "an object", such)
			return
		}
		f.message(path, m)
	}
}

// maxListedValues is the number of values of an enum up to which a violation lists them.
const maxListedValues = 8

// enum checks the name or the number of a value.
func (f *jsonFaults) enum(path string, e protoreflect.EnumDescriptor, token json.Token, such string) {
	name, ok := token.(string)
	if number, isNumber := token.(json.Number); isNumber && isWhole(number.String(), protoreflect.Int32Kind) {
		return
	}
	if !ok {
		f.wrong(path, token, "the name of a value in quotes", such)
		return
	}
	if e.Values().ByName(protoreflect.Name(name)) != nil {
		return
	}
	if f.full() {
		f.Violations.more++
		return
	}
	prefix := enumPrefix(e)
	names := make([]string, 0, e.Values().Len())
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	if len(name) <= 60 {
		wanted := prefix + strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(name, "-", "_")), prefix)
		if near := typo.Nearest(wanted, prefix, names); near != "" {
			f.Add(path, "is %q: did you mean %q?", name, near)
			return
		}
	}
	if len(names) > maxListedValues {
		f.Add(path, "is %.40q: give a value of %s, such as %q", name, e.Name(), names[0])
		return
	}
	f.Add(path, "is %.40q: give one of %s", name, strings.Join(names, ", "))
}

// enumPrefix returns the prefix of the values of an enum, such as "COOKIE_MODE_".
func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().ByNumber(0).Name()), "UNSPECIFIED")
}

// kindOf names the type of the value that starts with token.
func kindOf(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return "text"
	case json.Number:
		return "a number"
	case bool:
		return strconv.FormatBool(token)
	}
	return "null"
}

// example returns a valid value of a field, or of an entry of a list, as JSON.
func example(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		switch m := fd.Message(); m.FullName() {
		case "google.protobuf.Duration":
			return `"5s"`
		case "google.protobuf.Timestamp":
			return `"2026-01-02T15:04:05Z"`
		case "fetchd.v1.Header":
			return `{"name": "Accept", "value": "text/html"}`
		default:
			if m.Fields().Len() == 0 {
				return "{}"
			}
			first := m.Fields().Get(0)
			return fmt.Sprintf(`{%q: %s}`, first.Name(), example(first))
		}
	case protoreflect.StringKind:
		return `"text"`
	case protoreflect.BytesKind:
		return `"aGVsbG8="`
	case protoreflect.BoolKind:
		return "true"
	case protoreflect.EnumKind:
		return strconv.Quote(string(fd.Enum().Values().Get(1).Name()))
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return "1.5"
	default:
		return "5"
	}
}

// isJSON reports whether protojson reads text as m.
func isJSON(text string, m proto.Message) bool {
	quoted, err := json.Marshal(text)
	return err == nil && protojson.Unmarshal(quoted, m) == nil
}

// isBase64 reports whether protojson reads text as bytes: in either alphabet, with or without
// padding.
func isBase64(text string) bool {
	encoding := base64.StdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	if len(text)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	_, err := encoding.DecodeString(text)
	return err == nil
}

// isWhole reports whether text is an integer of a kind. JSON allows 1e3 and 5.0.
func isWhole(text string, kind protoreflect.Kind) bool {
	bits := 64
	if slices.Contains([]protoreflect.Kind{protoreflect.Int32Kind, protoreflect.Uint32Kind}, kind) {
		bits = 32
	}
	unsigned := kind == protoreflect.Uint32Kind || kind == protoreflect.Uint64Kind
	var err error
	if unsigned {
		_, err = strconv.ParseUint(text, 10, bits)
	} else {
		_, err = strconv.ParseInt(text, 10, bits)
	}
	if err == nil {
		return true
	}
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == math.Trunc(n) && math.Abs(n) < float64(int64(1)<<(min(bits, 54)-1)) && (n >= 0 || !unsigned)
}

// JSONElements counts the fields and list entries of a JSON text, which use memory in addition to it.
func JSONElements(text []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}
