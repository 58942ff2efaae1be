// Package hartest checks HTTP archives in tests.
package hartest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxFaults is the maximum number of faults in the error of [Check].
const maxFaults = 20

// sumTolerance is how many milliseconds the time of an entry may differ from the sum of its
// timings, because numbers are rounded when they are written.
const sumTolerance = 0.01

// Check checks an archive against HAR 1.2: required fields, types, dates, page references, the
// sums of timings. The error lists up to 20 faults, each with its place. A byte order mark is
// ignored.
func Check(data []byte) error {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return errors.New("the archive is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var root any
	if err := dec.Decode(&root); err != nil {
		return fmt.Errorf("the archive is no JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the archive")
	}
	c := new(checker)
	object, ok := root.(map[string]any)
	if !ok {
		return errors.New("the archive is no object")
	}
	c.object("", object, []field{{name: "log", is: c.log}})
	return errors.Join(c.faults...)
}

// checker collects the faults of one archive.
type checker struct {
	faults []error
	pages  []string
	began  time.Time // of the entry before
}

// field is one field of an object.
type field struct {
	name     string
	optional bool
	is       func(at string, v any)
}

func (c *checker) fault(at, format string, args ...any) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, fmt.Errorf("%s "+format, append([]any{at}, args...)...))
	}
}

// object checks the fields of an object. A field that the specification does not
// have begins with an underscore.
func (c *checker) object(at string, object map[string]any, fields []field) {
	known := map[string]bool{"comment": at != ""}
	for _, f := range fields {
		known[f.name] = true
		v, there := object[f.name]
		switch {
		case there:
			f.is(join(at, f.name), v)
		case !f.optional:
			c.fault(join(at, f.name), "is missing")
		}
	}
	if v, there := object["comment"]; there && known["comment"] {
		c.text(join(at, "comment"), v)
	}
	for _, name := range sortedNames(object) {
		if !known[name] && !strings.HasPrefix(name, "_") {
			c.fault(join(at, name), "is not in the specification: begin its name with an underscore")
		}
	}
}

func join(at, name string) string { return strings.TrimPrefix(at+"."+name, ".") }

func sortedNames(object map[string]any) []string {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// shape returns the check of an object with these fields.
func (c *checker) shape(fields ...field) func(string, any) {
	return func(at string, v any) { c.shaped(at, v, fields...) }
}

// shaped checks an object, and returns it, or nil where it is none.
func (c *checker) shaped(at string, v any, fields ...field) map[string]any {
	object, ok := v.(map[string]any)
	if !ok {
		c.fault(at, "is no object")
		return nil
	}
	c.object(at, object, fields)
	return object
}

// list returns the check of an array of such elements.
func (c *checker) list(each func(string, any)) func(string, any) {
	return func(at string, v any) {
		list, ok := v.([]any)
		if !ok {
			c.fault(at, "is no array")
			return
		}
		for i, v := range list {
			each(fmt.Sprintf("%s[%d]", at, i), v)
		}
	}
}

func (c *checker) text(at string, v any) {
	if _, ok := v.(string); !ok {
		c.fault(at, "is no string")
	}
}

func (c *checker) flag(at string, v any) {
	if _, ok := v.(bool); !ok {
		c.fault(at, "is no boolean")
	}
}

// whole is an integer of at least -1.
func (c *checker) whole(at string, v any) {
	if n, ok := v.(float64); !ok || n != math.Trunc(n) || n < -1 {
		c.fault(at, "is %v: want an integer of at least -1", v)
	}
}

// spent is a time in milliseconds.
func (c *checker) spent(at string, v any) {
	if n, ok := v.(float64); !ok || n < 0 {
		c.fault(at, "is %v: want milliseconds, 0 or more", v)
	}
}

// spentOrNone is a time, or -1 where it does not apply.
func (c *checker) spentOrNone(at string, v any) {
	if n, ok := v.(float64); !ok || n < 0 && n != -1 {
		c.fault(at, "is %v: want milliseconds, or -1", v)
	}
}

// date is a moment in ISO 8601, with its zone.
func (c *checker) date(at string, v any) {
	text, ok := v.(string)
	if !ok {
		c.fault(at, "is no string")
		return
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		c.fault(at, "is %q: want a date such as 2009-07-24T19:20:30.45+01:00", text)
	}
}

func (c *checker) absoluteURL(at string, v any) {
	text, ok := v.(string)
	if !ok {
		c.fault(at, "is no string")
		return
	}
	if u, err := url.Parse(text); err != nil || !u.IsAbs() {
		c.fault(at, "is %q: want an absolute URL", text)
	} else if strings.Contains(text, "#") {
		c.fault(at, "is %q: want it without its fragment", text)
	}
}

func (c *checker) address(at string, v any) {
	text, ok := v.(string)
	if _, err := netip.ParseAddr(strings.Trim(text, "[]")); !ok || err != nil {
		c.fault(at, "is %v: want an IP address", v)
	}
}
