package download

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"fetchd/internal/cli"
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

// naming gives every URL a file of its own. Names that differ in case alone
// count as the same: on some file systems they are.
type naming struct {
	dir   *folder
	sums  map[string]string
	begun map[string]string // name of a file that was begun → its URL

	mu    sync.Mutex
	taken map[string]string // name → URL
}

// newNaming gives names before anything is fetched: those that the user gave,
// then those of files that an earlier run began, then those of the URLs.
func newNaming(dir *folder, entries []*entry, sums map[string]string) (*naming, error) {
	begun, err := dir.begun()
	if err != nil {
		return nil, err
	}
	n := &naming{dir: dir, sums: sums, begun: begun, taken: make(map[string]string)}
	byURL := make(map[string]string)
	for name, u := range begun {
		if other, ok := byURL[u]; !ok || name < other {
			byURL[u] = name
		}
		n.taken[fold(name)] = u
	}
	given := make(map[string]string)
	for _, e := range entries {
		if !e.fixed {
			continue
		}
		if where, twice := given[fold(e.name)]; twice {
			return nil, cli.UsageError(e.where, fmt.Sprintf("the name %q was given before: %s", e.name, where))
		}
		given[fold(e.name)] = e.where
		if u, ok := n.taken[fold(e.name)]; ok && u != e.url {
			return nil, cli.UsageError(e.where, fmt.Sprintf("%s is of another URL: finish that one, or remove it", e.name+partEnding))
		}
		n.taken[fold(e.name)] = e.url
	}
	for _, e := range entries {
		if e.fixed {
			continue
		}
		if name, ok := byURL[e.url]; ok {
			e.name, e.fixed = name, true
			continue
		}
		e.name = n.take(urlName(e.url), e.url)
		_, e.fixed = sums[e.name] // then it is what the user expects
	}
	return n, nil
}

func fold(name string) string { return strings.ToLower(name) }

// take gives a URL the name, or one like it.
func (n *naming) take(name, url string) string {
	if u, ok := n.taken[fold(name)]; ok && u != url {
		name = ownName(name, url)
	}
	n.taken[fold(name)] = url
	return name
}

// settle gives a file the name that the origin wants for it, if that is free. A
// file of that name and of that size is taken for the same one, unless force
// replaces it anyway.
func (n *naming) settle(e *entry, wanted string, size int64, force bool) error {
	if e.fixed || wanted == "" || wanted == e.name {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	name := wanted
	if u, ok := n.taken[fold(name)]; ok && u != e.url {
		name = ownName(wanted, e.url)
	}
	info, err := n.dir.lstat(name)
	if err == nil && !force && name == wanted && (!info.Mode().IsRegular() || info.Size() != size) {
		name = ownName(wanted, e.url)
		_, err = n.dir.lstat(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.OutputError(err)
	}
	e.name, e.fixed = name, true
	n.taken[fold(name)] = e.url
	return nil
}
