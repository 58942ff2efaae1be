package auth

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"fetchd/fetch/signing"
)

// signer is a provider that signs requests.
type signer struct {
	origins map[origin]bool
	headers []string // the canonical names of the fields that it adds
	signingKey
}

// signingKey is the key of a signer.
type signingKey interface {
	// sign returns the fields to add to a request.
	sign(m *signing.Message) ([]signing.Field, error)
	// refresh reports whether there is another key than the one that an origin rejected.
	refresh() error
}

// Covers implements [Provider].
func (s *signer) Covers(u *url.URL) bool { return s.origins[originOf(u)] }

// Headers returns the names of the fields that the signer adds.
func (s *signer) Headers() []string { return s.headers }

// Field implements [Provider]. There is no field without a request.
func (s *signer) Field(context.Context) (name, value string, err error) { return "", "", nil }

// Refresh implements [Provider]. It reads the key again.
func (s *signer) Refresh(context.Context, string) error { return s.refresh() }

// Sign returns the fields to add to a request. The error contains no secret.
func (s *signer) Sign(_ context.Context, m *signing.Message) ([]signing.Field, error) {
	return s.sign(m)
}

// String returns a text without the key.
func (*signer) String() string { return "[signer]" }

// GoString returns a text without the key.
func (*signer) GoString() string { return "[signer]" }

// newlyRead is how long after a key was replaced a rejection is taken for one of the old key. A request
// that was signed with that may take so long.
const newlyRead = 30 * time.Second

// keyFile is a key in a file that another program updates.
type keyFile[K any] struct {
	file  *file
	parse func(text string) (K, error)

	mu       sync.Mutex
	text     []byte
	key      K
	replaced time.Time // when key replaced another one; zero: it is the first
	again    time.Time // when a rejection makes it read the file again
	fault    error     // of the last time it was read
}

func newKeyFile[K any](path, setting string, parse func(text string) (K, error)) (*keyFile[K], error) {
	k := &keyFile[K]{file: &file{path: path, setting: setting}, parse: parse}
	return k, k.readLocked() // it is not shared yet
}

// current returns the key. It reads the file again if that has changed. If the new key is invalid, the last one
// may still work.
func (k *keyFile[K]) current() K {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file.Stale() {
		k.fault = k.readLocked()
	}
	return k.key
}

// refresh reads the file again, but at most once a second, because an origin may reject everything. It returns
// [ErrRefused] if the key is the same, and was not replaced just now.
func (k *keyFile[K]) refresh() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); !now.Before(k.again) {
		k.again, k.fault = now.Add(checkInterval), k.readLocked()
	}
	if k.fault != nil {
		return k.fault
	}
	if k.replaced.IsZero() || time.Since(k.replaced) > newlyRead {
		return ErrRefused
	}
	return nil
}

func (k *keyFile[K]) readLocked() error {
	text, err := k.file.read()
	if err != nil {
		return err
	}
	if k.text != nil && bytes.Equal(text, k.text) {
		return nil
	}
	key, err := k.parse(string(text))
	if err != nil {
		return k.file.wrap(err)
	}
	if k.text != nil {
		k.replaced = time.Now()
	}
	k.text, k.key = text, key
	return nil
}

// taken are fields that a signer may not add: the service writes them itself, or they speak of the connection.
var taken = []string{"Accept-Encoding", "Connection", "Content-Length", "Cookie", "Expect", "Fetchd-Hops", "Host", "Keep-Alive", "Range", "Te", "Traceparent", "Tracestate", "Trailer", "Transfer-Encoding",
	"Upgrade", "User-Agent"}

// mayAdd reports whether a signer may add a field.
func mayAdd(name string) bool {
	return httpguts.ValidHeaderFieldName(name) && !slices.Contains(taken, name) && !strings.HasPrefix(name, "Proxy-")
}
