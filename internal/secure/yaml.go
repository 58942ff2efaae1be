package secure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineNumber is how the decoder tells where.
var lineNumber = regexp.MustCompile(`line \d+`)

// DecodeYAML decodes the only document of a file into v, a pointer to a struct, and rejects keys
// that v does not have. An empty file changes nothing. The error names the lines and not what is in
// them, which may be a secret; want says what they should contain.
func DecodeYAML(raw []byte, v any, want string) error {
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		where := "is not usable"
		if lines := lineNumber.FindAllString(fmt.Sprint(err), -1); len(lines) > 0 {
			where = strings.Join(slices.Compact(lines), ", ") + ": not usable"
		}
		return fmt.Errorf("%s: want %s", where, want)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("has a second document: put all into one")
	}
	return nil
}
