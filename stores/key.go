package stores

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxKey     = 1024 // bytes, the limit of S3; it includes the prefix
	maxPrefix  = 512  // bytes, so that a digest fits
	maxSegment = 255  // bytes, the limit of most file systems
	incoming   = ".incoming"
)

// checkKey returns an error if key is not valid. The rule is the same for every kind of store, so
// that a caller need not know the kind. The text follows the name of a field.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("is empty: give a key")
	case len(key) > maxKey:
		return fmt.Errorf("has %d bytes: give at most %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return errors.New("is not valid UTF-8")
	}
	for _, r := range key {
		// XML cannot contain U+FFFE and U+FFFF, so a bucket with such a key could not be listed.
		if unicode.IsControl(r) || r == '\\' || r == 0xfffe || r == 0xffff {
			return fmt.Errorf("contains %q: use no control characters and no backslash", r)
		}
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch {
		case segment == "":
			return errors.New("has an empty segment: give names separated by single slashes, without a slash at either end")
		case segment == "." || segment == "..":
			return fmt.Errorf("has the segment %q, which is not a name", segment)
		case len(segment) > maxSegment:
			return fmt.Errorf("has a segment of %d bytes: give at most %d", len(segment), maxSegment)
		case strings.EqualFold(segment, incoming): // in any place, because a symbolic link may lead back to the root
			return fmt.Errorf("has the segment %s, where the store keeps unfinished files", incoming)
		}
	}
	return nil
}

// checkPrefix returns the prefix with a slash at the end, or an empty one.
func checkPrefix(prefix string) (string, error) {
	if prefix == "" {
		return "", nil
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if err := checkKey(prefix); err != nil {
		return "", fmt.Errorf("the prefix %w", err)
	}
	if len(prefix) > maxPrefix {
		return "", fmt.Errorf("the prefix has %d bytes: give at most %d", len(prefix), maxPrefix)
	}
	return prefix + "/", nil
}

// checkDigest returns an error unless sha256 is a SHA-256 in lower-case hexadecimal.
func checkDigest(sha256 string) error {
	if raw, err := hex.DecodeString(sha256); err != nil || len(raw) != 32 || strings.ToLower(sha256) != sha256 {
		return fmt.Errorf("%.70q is not a SHA-256 in lower-case hexadecimal", sha256)
	}
	return nil
}

// digestKey returns the key of an object that is named by its digest.
func digestKey(sha256 string) string { return "sha256/" + sha256[:2] + "/" + sha256 }
