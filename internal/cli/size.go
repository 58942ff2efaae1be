package cli

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes, written with or without a unit.
type ByteSize int64

// units are decimal and binary units.
var units = map[string]float64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *ByteSize) UnmarshalText(text []byte) error {
	text = bytes.TrimSpace(text)
	end := bytes.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	unit, known := units[strings.ToUpper(string(bytes.TrimSpace(text[end:])))]
	n, err := strconv.ParseFloat(string(text[:end]), 64)
	if err != nil || !known || n*unit > math.MaxInt64/2 {
		return fmt.Errorf("%.20q is not a size: give bytes, or a number with kB, MB, GB, KiB, MiB or GiB", text)
	}
	*s = ByteSize(n * unit)
	return nil
}
