package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/internal/cli"
	"fetchd/internal/secure"
	"fetchd/internal/signkeys"
)

// keyWait is how long a key in a folder with others is published before it signs, unless the operator says
// otherwise. Replicas read it within a minute, and verifiers that have cached the directory within a day.
const keyWait = 24 * time.Hour

// newKey writes a key pair to a file of a folder, and prints the name of the file and the id of the key.
// The explanation goes to standard error.
func (p *program) newKey(s *settings, now time.Time) error {
	in := &s.Keys.New
	wait, err := in.wait(now)
	if err != nil {
		return unusable(err)
	}
	if wait < 0 || in.ValidFor < 0 || in.ValidFor > 0 && in.ValidFor <= wait {
		return unusable(fmt.Errorf("--valid-for must exceed --starts-after, which is %s, and both must be positive", wait))
	}
	k, err := httpsig.NewKey(in.Algorithm)
	if err != nil {
		return unusable(fmt.Errorf("--algorithm: %w", err))
	}
	k.NotBefore = now.Add(wait)
	if in.ValidFor > 0 {
		k.NotAfter = now.Add(in.ValidFor)
	}
	raw, err := k.JWK()
	if err != nil {
		return err
	}
	name := filepath.Join(in.Folder, now.UTC().Format("2006-01-02T150405Z-")+k.ID[:8]+".json")
	if err := writeKey(name, append(raw, '\n')); err != nil {
		return unusable(err)
	}
	if _, err := fmt.Fprintf(p.stdout, "%s\n%s\n", name, k.ID); err != nil {
		return cli.OutputError(err)
	}
	_, _ = fmt.Fprintln(p.stderr, "The first line is the file of the private key, the second its keyid. Name the file or its folder in key-files of http-signature in the --origins-file. A running service finds it within a minute.")
	if wait > 0 {
		_, _ = fmt.Fprintf(p.stderr, "It signs from %s on. Until then it is only published, so that verifiers know it in time; --starts-after changes that.\n", k.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// wait returns how long the key does not sign. The default is keyWait if the folder has a key, but never
// leaves a time without a key that signs.
func (in *newKey) wait(now time.Time) (time.Duration, error) {
	if in.StartsAfter != nil {
		return *in.StartsAfter, nil
	}
	keys, err := signkeys.Read([]string{in.Folder}, secure.ReadFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, signkeys.ErrNone) {
		return 0, nil
	}
	var wait time.Duration
	for _, k := range keys {
		others := keyWait
		if !k.NotAfter.IsZero() {
			others = min(keyWait, k.NotAfter.Sub(now))
		}
		wait = max(wait, others)
	}
	return wait, err
}

// writeKey writes a new file that no one else can read, and that survives a crash of the machine. A service
// that reads the folder does not find a part of it.
func writeKey(name string, raw []byte) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	part := filepath.Join(dir, "."+filepath.Base(name))
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if runtime.GOOS == "windows" {
		return nil // it cannot sync folders
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// printDirectory prints the directory of public keys, for hosting elsewhere.
func (p *program) printDirectory(paths []string, now time.Time) error {
	keys, err := signkeys.Read(paths, secure.ReadFile)
	if err != nil {
		return unusable(err)
	}
	body, err := httpsig.Directory(keys, now)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(p.stdout, "%s\n", body); err != nil {
		return cli.OutputError(err)
	}
	if _, err := httpsig.Current(keys, now); err != nil {
		_, _ = fmt.Fprintf(p.stderr, "fetchd: %v\n", err) // a failed write cannot be reported
	}
	_, _ = fmt.Fprintf(p.stderr, "Serve this at %s of the origin that is the agent, with the Content-Type %s.\n", httpsig.DirectoryPath, httpsig.DirectoryType)
	return nil
}

// httpSignature configures a provider that signs requests (RFC 9421).
type httpSignature struct {
	httpsig.Config `yaml:",inline"`
	KeyFiles       []string `yaml:"key-files"` // files, and folders of files
	KeyID          string   `yaml:"key-id"`
	Algorithm      string   `yaml:"algorithm"`
	AgentForm      string   `yaml:"agent-form"`
	Components     []string `yaml:"components"`
	Optional       []string `yaml:"optional"`
	// What an origin may ask for, and the statuses of responses that do.
	OnChallenge      []int    `yaml:"on-challenge"`
	AcceptComponents []string `yaml:"accept-components"`
}

// httpSignature makes a provider that signs.
func (o *origins) httpSignature(p *originProvider) (auth.Provider, error) {
	if p.Header != "" || p.Scheme != "" || p.Token != "" || p.TokenFile != "" || p.Client != nil || p.HMAC != nil || p.SigV4 != nil {
		return nil, errors.New("http-signature cannot be combined with header, scheme, token, token-file, client, hmac and aws-sigv4: use two providers")
	}
	signer, err := p.HTTPSignature.signer(o.file)
	if err != nil {
		return nil, fmt.Errorf("http-signature: %w", err)
	}
	return auth.NewHTTPSignature(p.Origins, signer, p.HTTPSignature.OnChallenge)
}

// watchKeys logs the key of each provider that signs, and a provider without a valid one, once per change.
func (l *live) watchKeys(at time.Time) {
	now := make(map[string]string)
	for name, k := range l.origins.keys(at) {
		if now[name] = k.text; now[name] == l.keys[name] {
			continue
		}
		if k.valid {
			l.logger.Info("requests are signed with this key", slog.String("auth_provider", name), slog.String("keyid", k.text))
		} else {
			l.logger.Warn("a provider has no valid key: requests that it would sign are not sent", slog.String("auth_provider", name), slog.String("reason", k.text))
		}
	}
	l.keys = now
}

// currentKey is the id of the key that signs, or why none does.
type currentKey struct {
	text  string
	valid bool
}

// keys yields the providers that sign with keys whose time is limited, by name.
func (o *origins) keys(at time.Time) iter.Seq2[string, currentKey] {
	return func(yield func(string, currentKey) bool) {
		for _, name := range slices.Sorted(maps.Keys(o.providers)) {
			p, ok := o.providers[name].Provider.(*auth.HTTPSignature)
			if !ok {
				continue
			}
			k, err := p.Current(at)
			current := currentKey{fmt.Sprint(err), false}
			if err == nil {
				current = currentKey{cmp.Or(k.ID, k.Algorithm), true}
			}
			if !yield(name, current) {
				return
			}
		}
	}
}

// warnKeys prints the providers without a valid key.
func (o *origins) warnKeys(w io.Writer, at time.Time) {
	for name, k := range o.keys(at) {
		if !k.valid {
			_, _ = fmt.Fprintf(w, "fetchd: provider %s: %s\n", name, k.text) // a failed write cannot be reported
		}
	}
}

// signer reads the keys and makes a signer.
func (h *httpSignature) signer(read func(string) ([]byte, error)) (*httpsig.Signer, error) {
	keys, err := signkeys.Read(h.KeyFiles, read)
	if err != nil {
		return nil, fmt.Errorf("key-files: %w", err)
	}
	for _, k := range keys {
		if h.Algorithm != "" && k.Algorithm != h.Algorithm {
			return nil, fmt.Errorf("algorithm: %.40q: a key is for %s", h.Algorithm, k.Algorithm)
		}
	}
	if h.KeyID != "" {
		if len(keys) != 1 || h.Profile != "" {
			return nil, errors.New("key-id: is for one key, and not for a profile: leave it out, or write the id into the JWK of each key")
		}
		keys[0].ID = h.KeyID
	}
	if h.AgentForm != "" && h.AgentForm != "string" && h.AgentForm != "dictionary" {
		return nil, fmt.Errorf("agent-form: %.40q: give dictionary or string", h.AgentForm)
	}
	if h.OnChallenge == nil && len(h.AcceptComponents)+len(h.AcceptTags) > 0 {
		return nil, errors.New("accept-components and accept-tags are for what origins ask for: set on-challenge too")
	}
	cfg := h.Config
	cfg.Keys, cfg.AgentString = keys, h.AgentForm == "string"
	for _, list := range []struct {
		key   string
		texts []string
		into  *[]httpsig.Component
	}{{"components", h.Components, &cfg.Components}, {"optional", h.Optional, &cfg.Optional}, {"accept-components", h.AcceptComponents, &cfg.Accept}} {
		for _, text := range list.texts {
			c, err := httpsig.ParseComponent(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list.key, err)
			}
			*list.into = append(*list.into, c)
		}
	}
	return httpsig.New(cfg)
}
