package secure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"fetchd/internal/typo"
)

const (
	// MaxFileBytes is the maximum size of a file of settings, tokens or certificates. A bundle of all
	// public authorities has 250 KB, a file with 100,000 tokens 11 MB.
	MaxFileBytes = 16 << 20
	// pipeTime is how long the writer of a pipe may take.
	pipeTime = 5 * time.Second
)

// ReadFile is [os.ReadFile] for files that a running service reads again. It returns an error for one of
// more than [MaxFileBytes], such as a device, and does not wait for a pipe without a writer.
func ReadFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()                // it was only read
	_ = f.SetReadDeadline(time.Now().Add(pipeTime)) // files have none, and do not wait
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(text) > MaxFileBytes {
		err = fmt.Errorf("%s: has more than %d MiB", name, MaxFileBytes>>20)
	}
	if info, statErr := f.Stat(); err == nil && len(text) == 0 && (statErr != nil || !info.Mode().IsRegular()) {
		err = fmt.Errorf("%s: is no file, and nothing is written to it", name) // an empty file may mean that nothing is configured
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// lineNumber is how the decoder tells where.
var lineNumber = regexp.MustCompile(`line \d+`)

// DecodeYAML decodes the only document of a file into v, a pointer to a struct, and rejects keys
// that v does not have, and empty callers. An empty file changes nothing. The error names the lines and the keys. It does
// not quote what else is in them, which may be a secret: of keys that v does not have it quotes only
// those that resemble one, and of values only numbers without a unit. If it cannot say what is wrong,
// want says what the file should contain.
func DecodeYAML(raw []byte, v any, want string) error {
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		var root yaml.Node
		if yaml.Unmarshal(raw, &root) == nil {
			if faults := faultsOf(root.Content[0], reflect.TypeOf(v).Elem(), ""); len(faults) > 0 {
				return errors.New(strings.Join(faults[:min(len(faults), maxFaults)], "; "))
			}
		}
		where := "is not usable"
		if lines := lineNumber.FindAllString(fmt.Sprint(err), -1); len(lines) > 0 {
			where = strings.Join(slices.Compact(lines), ", ") + ": not usable"
		}
		return fmt.Errorf("%s: want %s", where, want)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("has a second document: put all into one")
	}
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		return fmt.Errorf("is not usable: want %s", want)
	}
	if line := emptyCallers(&root); line > 0 {
		return fmt.Errorf("line %d: callers: is empty or has an empty name: name the callers, or leave it out", line)
	}
	return nil
}

// emptyCallers returns the line of a list of callers that seems to restrict callers and does not, or 0.
func emptyCallers(n *yaml.Node) int {
	for i, v := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "callers" {
			list := v
			if v.Kind == yaml.AliasNode {
				list = v.Alias
			}
			empty := func(item *yaml.Node) bool {
				return item.Tag == "!!null" || item.Kind == yaml.ScalarNode && item.Value == ""
			}
			if empty(list) || list.Kind == yaml.SequenceNode && (len(list.Content) == 0 || slices.ContainsFunc(list.Content, empty)) {
				return v.Line
			}
		}
		if line := emptyCallers(v); line > 0 {
			return line
		}
	}
	return 0
}

// maxFaults is the maximum number of faults in an error.
const maxFaults = 5

// faultsOf returns what is wrong with a value of a type, which belongs to a key. The key is empty for
// the file.
func faultsOf(n *yaml.Node, t reflect.Type, key string) (faults []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		return faultsOfKeys(n, t, key)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 1; i < len(n.Content); i += 2 {
			faults = append(faults, faultsOf(n.Content[i], t.Elem(), key)...)
		}
		return faults
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, item := range n.Content {
			faults = append(faults, faultsOf(item, t.Elem(), key)...)
		}
		return faults
	case n.Kind == yaml.AliasNode || key == "" || n.Decode(reflect.New(t).Interface()) == nil:
		return nil
	case t == reflect.TypeFor[time.Duration]() && n.Tag == "!!int" && len(n.Value) < 10:
		return []string{fmt.Sprintf("line %d: %s: %s is no duration: give its unit too, such as %[3]ss or %[3]sm", n.Line, key, n.Value)}
	}
	return []string{fmt.Sprintf("line %d: %s: want %s", n.Line, key, formOf(t))}
}

// faultsOfKeys returns what is wrong with the keys of a struct and their values.
func faultsOfKeys(n *yaml.Node, t reflect.Type, key string) (faults []string) {
	fields := make(map[string]reflect.Type)
	var names []string
	for _, f := range reflect.VisibleFields(t) { // with those of inline structs
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
			fields[name], names = f.Type, append(names, name)
		}
	}
	if key == "" {
		key = "the file"
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line := n.Content[i].Value, n.Content[i].Line
		typ, known := fields[name]
		near := typo.Nearest(strings.ToLower(name), "", names)
		switch {
		case n.Content[i].Tag == "!!merge":
		case !known && near != "":
			faults = append(faults, fmt.Sprintf("line %d: %q is not a key of %s: did you mean %s?", line, name, key, near))
		case !known:
			faults = append(faults, fmt.Sprintf("line %d: a key (not repeated here) is none of %s, which has %s", line, key, strings.Join(names, ", ")))
		case seen[name]:
			faults = append(faults, fmt.Sprintf("line %d: %s is given twice: keep one", line, name))
		default:
			faults = append(faults, faultsOf(n.Content[i+1], typ, name)...)
		}
		seen[name] = true
	}
	return faults
}

// formOf returns what values of a type look like.
func formOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration, such as 1m"
	case t.Kind() == reflect.Struct:
		return "keys, as {KEY: VALUE}"
	case t.Kind() == reflect.Map:
		return "names, as {NAME: VALUE}"
	case t.Kind() == reflect.Slice:
		return "a list, as [A, B]"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	}
	return "a whole number"
}
