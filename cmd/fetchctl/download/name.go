package download

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// maxName is the maximum length of a file name in bytes. With the longest of our suffixes it
// fits into the 255 bytes of common file systems.
const maxName = 240

// The suffixes of the files that belong to an unfinished download.
const (
	partEnding    = ".part"
	sidecarEnding = partEnding + ".json"
	freshEnding   = sidecarEnding + ".new" // a new sidecar before it replaces the old one
)

// urlName returns the file name for a URL.
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
		segment = decoded // an encoded slash is not a separator in the URL
	}
	if name := cleanName(segment); name != "" {
		return name
	}
	return none
}

// Name returns the file name for the body of a response: the one in its Content-Disposition, or
// else the one in the URL that was requested.
func Name(requested string, r *pb.HttpResponse) string {
	if name := dispositionName(dispositionOf(r)); name != "" {
		return name
	}
	return urlName(requested)
}

// dispositionName returns the file name in a Content-Disposition, or "" if there is none or it
// cannot be parsed. As RFC 6266 §4.3 says, filename* wins over filename, and only the last
// segment of a path counts.
func dispositionName(value string) string {
	_, params, err := mime.ParseMediaType(value)
	if err != nil {
		return ""
	}
	name := params["filename"] // this is filename*, if that is present
	if !utf8.ValidString(name) {
		name = fromLatin1(name)
	}
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	return cleanName(name)
}

// fromLatin1 converts ISO-8859-1 to UTF-8.
func fromLatin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// cleanName turns any text into a file name that is valid on every system. It has no
// separators, no invisible characters or such that change the direction of text, no leading
// dot or dash, no device name of Windows, and none of our suffixes. It returns "" if nothing
// is left. A clean name is not changed.
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
	s = strings.TrimRight(strings.TrimLeft(s, ". "), ". ") // Windows drops trailing ones
	if strings.HasPrefix(s, "-") {
		s = "_" + s[1:] // commands would take it for a flag
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

// devices are the names that Windows reserves, with any extension.
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

// shorten shortens a name to maxBytes, and keeps a short extension.
func shorten(name string, maxBytes int) string {
	if len(name) <= maxBytes {
		return name
	}
	ending := path.Ext(name)
	if len(ending) > 20 {
		ending = ""
	}
	stem := name[:maxBytes-len(ending)]
	for !utf8.ValidString(stem) {
		stem = stem[:len(stem)-1]
	}
	return stem + ending
}

// ownName returns a name that is unique for the URL.
func ownName(name, rawURL string) string {
	sum := sha256.Sum256([]byte(rawURL))
	mark := "-" + hex.EncodeToString(sum[:4])
	ending := path.Ext(name)
	if len(ending) > 20 {
		ending = ""
	}
	return cleanName(shorten(strings.TrimSuffix(name, ending), maxName-len(mark)-len(ending)) + mark + ending)
}

// naming gives every URL its own file name. Names that differ only in case count as the same,
// because they are the same on some file systems.
type naming struct {
	dir        *folder
	unfinished map[string]string // URL by name, of unfinished files

	mu    sync.Mutex
	taken map[string]string // URL by name
}

// newNaming assigns names before anything is fetched: first the names that the user gave, then
// those of unfinished and finished files, then those from URLs.
func newNaming(dir *folder, entries []*entry, sums map[string]string) (*naming, error) {
	unfinished, err := dir.unfinished()
	if err != nil {
		return nil, err
	}
	n := &naming{dir: dir, unfinished: unfinished, taken: make(map[string]string)}
	byURL := n.known(unfinished)
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
	there := n.known(dir.finished())
	for _, e := range entries {
		if e.fixed {
			continue
		}
		if name := cmp.Or(byURL[e.url], there[e.url]); name != "" {
			e.name, e.fixed = name, true
			continue
		}
		e.name = n.take(urlName(e.url), e.url)
		_, e.fixed = sums[e.name] // the list of digests expects this name
	}
	return n, nil
}

// known takes the names of files for their URLs unless they are taken, and returns them by URL.
func (n *naming) known(files map[string]string) (byURL map[string]string) {
	byURL = make(map[string]string)
	for name, u := range files {
		if other, ok := byURL[u]; !ok || name < other {
			byURL[u] = name
		}
		if _, ok := n.taken[fold(name)]; !ok {
			n.taken[fold(name)] = u
		}
	}
	return byURL
}

func fold(name string) string { return strings.ToLower(name) }

// take reserves the name for a URL, or a similar name if another URL has it.
func (n *naming) take(name, url string) string {
	if u, ok := n.taken[fold(name)]; ok && u != url {
		name = ownName(name, url)
	}
	n.taken[fold(name)] = url
	return name
}

// settle renames an entry to the name that the origin wants, or to a similar one if that is taken or
// exists. force replaces an existing file.
func (n *naming) settle(e *entry, wanted string, force bool) error {
	if e.fixed || wanted == "" || wanted == e.name {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	there, err := n.dir.exists(wanted)
	if err != nil {
		return cli.OutputError(err)
	}
	name := wanted
	if u, ok := n.taken[fold(name)]; ok && u != e.url || there && !force {
		name = ownName(wanted, e.url)
	}
	e.name, e.fixed = name, true
	n.taken[fold(name)] = e.url
	return nil
}
