// Package signkeys reads the keys that sign requests (RFC 9421), and has the flags with which a program signs
// as Web Bot Auth.
package signkeys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/internal/cli"
	"fetchd/internal/secure"
	"fetchd/server"
)

// maxKeys is the maximum number of keys of a signer. Each signs the directory.
const maxKeys = 32

// ErrNone is what [Read] returns for a folder without a key. Test for it with errors.Is.
var ErrNone = errors.New("the folder has no key")

// Read reads keys from files, and from the files of folders in the order of their names.
func Read(paths []string, read func(string) ([]byte, error)) ([]*httpsig.Key, error) {
	var keys []*httpsig.Key
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			raw, err := read(file)
			if err != nil {
				return nil, err
			}
			k, err := httpsig.ParseKey(raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if keys = append(keys, k); len(keys) > maxKeys {
				return nil, fmt.Errorf("there are more than %d", maxKeys)
			}
		}
	}
	return keys, nil
}

// filesOf returns a file, or the files of a folder. It leaves out folders and names with a dot at the
// start, such as those that Kubernetes adds to a volume.
func filesOf(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return []string{path}, nil // it is a file
	}
	var files []string
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if info, err := os.Stat(file); strings.HasPrefix(e.Name(), ".") || err == nil && info.IsDir() {
			continue
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrNone)
	}
	return files, nil
}

// Name is the name of the auth provider of [Flags]. Errors of the service name it.
const Name = "--sign-key"

// Flags make the service inside a program sign requests to https origins.
type Flags struct {
	SignKey   *string `name:"sign-key" placeholder:"FILE" group:"Service:" help:"Sign each request to an https origin (Web Bot Auth) with the key in this file, or with the newest key in this folder. \"fetchd keys new FOLDER\" makes one. Requires --sign-agent. Not with --server."`
	SignAgent *string `name:"sign-agent" placeholder:"URL" group:"Service:" help:"The https origin that publishes the keys of --sign-key, such as https://bot.example.com. Not with --server."`
	SignForm  string  `name:"sign-agent-form" enum:"dictionary,string" default:"dictionary" placeholder:"FORM" group:"Service:" help:"Form of Signature-Agent: dictionary, or string as older drafts have it, which some verifiers need. Default: ${default}."`
}

// Given reports whether a flag is given.
func (f *Flags) Given() bool { return f.SignKey != nil || f.SignAgent != nil }

// Signs reports whether the provider of the flags covers a URL.
func Signs(url string) bool { return strings.HasPrefix(strings.ToLower(url), "https:") }

// Check rejects flags that go together with --server. instead says what to do there.
func (f *Flags) Check(server, instead string) error {
	if !f.Given() || server == "" {
		return nil
	}
	name := Name
	if f.SignKey == nil {
		name = "--sign-agent"
	}
	return cli.UsageError(name, "is for the service inside: the one at --server or FETCHD_SERVER has its own keys. "+instead)
}

// Providers returns the auth provider of the flags, by its name. There is none if no flag is given.
func (f *Flags) Providers() (map[string]server.AuthProvider, error) {
	switch {
	case !f.Given():
		return nil, nil
	case f.SignKey == nil || *f.SignKey == "":
		return nil, cli.UsageError(Name, "is missing or empty, but --sign-agent is given: give the file or folder of the key. \"fetchd keys new FOLDER\" makes one")
	case f.SignAgent == nil || *f.SignAgent == "":
		return nil, cli.UsageError("--sign-agent", "is missing or empty, but --sign-key is given: give the https origin that publishes the keys, such as https://bot.example.com")
	}
	if _, err := httpsig.ParseAgent(*f.SignAgent); err != nil {
		shown := "the value (not repeated here)" // it may contain a password
		if !strings.Contains(*f.SignAgent, "@") {
			shown = fmt.Sprintf("%.80q", *f.SignAgent)
		}
		return nil, cli.UsageError("--sign-agent", shown+" is not an https origin: give the one that publishes the keys, such as https://bot.example.com")
	}
	p := &provider{path: *f.SignKey, agent: *f.SignAgent, text: f.SignForm == "string"}
	if err := p.read(time.Now()); err != nil {
		return nil, cli.UsageError(Name, fmt.Sprintf("%v: give a file with a private key, or a folder of them, that you can read. \"fetchd keys new FOLDER\" makes one", err))
	}
	p.HTTPSignature = p.now
	return map[string]server.AuthProvider{Name: {Provider: p}}, nil
}

// provider signs with keys that it reads again after a minute.
type provider struct {
	*auth.HTTPSignature // of the start, for what does not depend on the keys

	path, agent string
	text        bool // Signature-Agent is a string

	mu   sync.Mutex
	now  *auth.HTTPSignature
	next time.Time
}

// rereadAfter is how long keys are used before they are read again.
const rereadAfter = time.Minute

// read reads the keys. After an error those from before stay in use.
func (p *provider) read(at time.Time) error {
	p.next = at.Add(rereadAfter)
	keys, err := Read([]string{p.path}, secure.ReadFile)
	if err != nil {
		return err
	}
	now, err := p.make(keys)
	if err == nil {
		_, err = now.Sign(context.Background(), &signing.Message{Time: at, URL: &url.URL{Scheme: "https"}}) // no key may be valid now
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	p.now = now
	return nil
}

func (p *provider) make(keys []*httpsig.Key) (*auth.HTTPSignature, error) {
	signer, err := httpsig.New(httpsig.Config{Keys: keys, Profile: httpsig.WebBotAuth, Agent: p.agent, AgentString: p.text})
	if err != nil {
		return nil, err
	}
	return auth.NewHTTPSignature([]string{"https://*"}, signer, nil)
}

// Sign implements fetch.Signer.
func (p *provider) Sign(ctx context.Context, m *signing.Message) ([]signing.Field, error) {
	return p.current(m.Time).Sign(ctx, m)
}

func (p *provider) current(at time.Time) *auth.HTTPSignature {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !at.Before(p.next) {
		_ = p.read(at)
	}
	return p.now
}
