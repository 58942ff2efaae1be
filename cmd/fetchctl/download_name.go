package main

import (
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest name of a file in bytes: with the endings of what
// belongs to it, it fits the 255 that file systems take.
const maxName = 240

// What belongs to a file while it is under way.
const (
	partEnding    = ".part"
	sidecarEnding = partEnding + ".json"
	freshEnding   = sidecarEnding + ".new" // a sidecar before it has its name
)

// urlName is the name that a URL gives its file.
func urlName(raw string) string {
	const none = "index.html"
	u, err := url.Parse(raw)
	if err != nil {
		return none
	}
	segment := path.Base("/" + u.EscapedPath())
	if segment == "/" || strings.HasSuffix(u.EscapedPath(), "/") {
		return none
	}
	if decoded, err := url.PathUnescape(segment); err == nil {
		segment = decoded // a slash that was encoded is no separator of the URL's
	}
	if name := cleanName(segment); name != "" {
		return name
	}
	return none
}

// dispositionName is the name that a Content-Disposition gives, or "" where
// there is none or it cannot be read (RFC 6266 §4.3: filename* before filename,
// and of a path the last segment alone).
func dispositionName(value string) string {
	_, params, err := mime.ParseMediaType(value)
	if err != nil {
		return ""
	}
	name := params["filename"] // it holds filename*, if that was given
	if !utf8.ValidString(name) {
		name = fromLatin1(name)
	}
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	return cleanName(name)
}

// fromLatin1 reads bytes as ISO-8859-1.
func fromLatin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// cleanName makes of any text the name of a file that is one everywhere: no
// separator, nothing that cannot be seen or turns the direction of text, no
// leading dot or dash, no device of Windows, none of our own endings. It is ""
// where nothing is left, and leaves a clean name as it is.
func cleanName(s string) string {
	for {
		next := cleanOnce(s)
		if next == s {
			return s
		}
		s = next
	}
}

func cleanOnce(s string) string {
	s = strings.Map(cleanRune, strings.ToValidUTF8(s, "_"))
	s = strings.TrimRight(strings.TrimLeft(s, ". "), ". ") // Windows drops those at the end
	if strings.HasPrefix(s, "-") {
		s = "_" + s[1:] // else a command takes it for a flag
	}
	if isDevice(s) {
		s = "_" + s
	}
	for _, own := range []string{partEnding, sidecarEnding, freshEnding} {
		if strings.HasSuffix(strings.ToLower(s), own) {
			s += "_"
		}
	}
	return shorten(s, maxName)
}

func cleanRune(r rune) rune {
	switch {
	case unicode.IsSpace(r) && r != ' ' && unicode.IsGraphic(r):
		return ' '
	case strings.ContainsRune(`/\<>:"|?*`, r), !unicode.IsGraphic(r): // neither Cc nor Cf: no bidi controls
		return '_'
	}
	return r
}

// devices are the names that Windows keeps for itself, with any ending.
var devices = []string{"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"}

func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	if slices.Contains(devices, stem) {
		return true
	}
	port, isPort := strings.CutPrefix(stem, "COM")
	if !isPort {
		port, isPort = strings.CutPrefix(stem, "LPT")
	}
	return isPort && utf8.RuneCountInString(port) == 1 && strings.Contains("0123456789¹²³", port)
}

// shorten cuts a name to so many bytes, and keeps a short ending.
func shorten(name string, most int) string {
	if len(name) <= most {
		return name
	}
	ending := path.Ext(name)
	if len(ending) > 20 {
		ending = ""
	}
	stem := name[:most-len(ending)]
	for !utf8.ValidString(stem) {
		stem = stem[:len(stem)-1]
	}
	return stem + ending
}

// ownName is a name that no other URL has.
func ownName(name, rawURL string) string {
	sum := sha256.Sum256([]byte(rawURL))
	mark := "-" + hex.EncodeToString(sum[:4])
	ending := path.Ext(name)
	if len(ending) > 20 {
		ending = ""
	}
	return cleanName(shorten(strings.TrimSuffix(name, ending), maxName-len(mark)-len(ending)) + mark + ending)
}
