package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"fetchd/internal/secure"
)

// configFile resolves flags from the file that --config names. The file is read at the first
// lookup, because its name is a flag itself.
type configFile struct {
	path    string
	entries map[string]entry
	read    bool
	err     error // without kong's own words
}

// entry is one setting of the file.
type entry struct {
	line int
	text string // in the syntax of the flag
}

// Validate implements kong.Resolver.
func (c *configFile) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. The environment wins over the file.
func (c *configFile) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !c.read {
		c.read = true
		c.err = c.load(ctx)
	}
	if c.err != nil {
		return nil, c.err
	}
	found, ok := c.entries[flag.Name]
	if !ok || inEnvironment(flag) != "" {
		return nil, nil
	}
	return found.text, nil
}

// inEnvironment returns the variable that sets a flag, or "".
func inEnvironment(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return name
		}
	}
	return ""
}

func (c *configFile) load(ctx *kong.Context) error {
	if selected := ctx.Selected(); selected != nil && selected.Name == "token" {
		return nil // it uses no settings
	}
	known := make(map[string]*kong.Flag)
	for _, flag := range ctx.Model.Flags {
		if flag.Name == "config" {
			c.path, _ = ctx.FlagValue(flag).(string)
		} else if storable(flag) {
			known[flag.Name] = flag
		}
	}
	if c.path == "" {
		return nil
	}
	text, err := secure.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	c.entries, err = parseFile(c.path, text, known)
	return err
}

// storable reports whether a flag is a setting, and not a request such as --help.
func storable(flag *kong.Flag) bool {
	return len(flag.Envs) > 0 && flag.Name != "config" && flag.Name != "help"
}

// parseFile parses a settings file. The error names the file, the line, the key and the
// remedy.
func parseFile(path string, text []byte, known map[string]*kong.Flag) (map[string]entry, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // an empty file
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: has more than one YAML document: keep one", path)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: want settings such as max-fetches: 500", path, root.Line)
	}
	entries := make(map[string]entry)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		flag, ok := known[key.Value]
		if !ok || key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("%s:%d: %s: is not a setting: keys are the flags of fetchd --help without the leading dashes", path, key.Line, key.Value)
		}
		if first, twice := entries[key.Value]; twice {
			return nil, fmt.Errorf("%s:%d: %s: is already set on line %d: keep one", path, key.Line, key.Value, first.line)
		}
		text, err := textOf(flag, value)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", path, value.Line, key.Value, err)
		}
		entries[key.Value] = entry{key.Line, text}
	}
	return entries, nil
}

// form is how a value of some type is written in YAML.
type form struct {
	tags []string
	want string
}

var forms = map[reflect.Type]form{
	reflect.TypeFor[string]():        {[]string{"!!str"}, "text, in quotes where YAML would take it for something else"},
	reflect.TypeFor[bool]():          {[]string{"!!bool"}, "true or false"},
	reflect.TypeFor[int]():           {[]string{"!!int"}, "a whole number"},
	reflect.TypeFor[int64]():         {[]string{"!!int"}, "a whole number"},
	reflect.TypeFor[uint16]():        {[]string{"!!int"}, "port numbers from 1 to 65535"},
	reflect.TypeFor[float64]():       {[]string{"!!int", "!!float"}, "a number such as 0.5"},
	reflect.TypeFor[time.Duration](): {[]string{"!!str"}, "a time with its unit, such as 15m"},
	reflect.TypeFor[netip.Prefix]():  {[]string{"!!str"}, "prefixes such as 10.1.0.0/16"},
}

// textOf returns a value in the syntax of the flag.
func textOf(flag *kong.Flag, value *yaml.Node) (string, error) {
	typ, items := flag.Target.Type(), []*yaml.Node{value}
	list := typ.Kind() == reflect.Slice
	if list {
		typ, items = typ.Elem(), value.Content
	}
	form, shown := forms[typ], ""
	if !flag.Tag.Has("secret") && value.Kind == yaml.ScalarNode {
		shown = strconv.Quote(value.Value) + " "
	}
	wrong := fmt.Errorf("%sis not usable: want %s", shown, form.want)
	if list {
		wrong = fmt.Errorf("%sis not usable: want a list, [A, B], of %s", shown, form.want)
	}
	if list && value.Kind != yaml.SequenceNode {
		return "", wrong
	}
	texts := make([]string, 0, len(items))
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || !slices.Contains(form.tags, item.Tag) || list && item.Value == "" {
			return "", wrong
		}
		texts = append(texts, item.Value)
	}
	text := texts
	if list {
		text = []string{kong.JoinEscaped(texts, ',')}
	}
	try := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: text[0]}), try); err != nil {
		return "", wrong // kong's error has neither the file nor a remedy
	}
	return text[0], nil
}
