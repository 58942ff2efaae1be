package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/internal/cli"
	"fetchd/internal/secure"
)

// newKey writes a key pair to a file of a folder, and prints the name of the file and the id of the key.
// The explanation goes to standard error.
func (p *program) newKey(s *settings, now time.Time) error {
	in := &s.Keys.New
	if in.StartsAfter < 0 || in.ValidFor < 0 || in.ValidFor > 0 && in.ValidFor <= in.StartsAfter {
		return unusable(errors.New("--valid-for must exceed --starts-after, and both must be positive"))
	}
	k, err := httpsig.NewKey(in.Algorithm)
	if err != nil {
		return unusable(fmt.Errorf("--algorithm: %w", err))
	}
	k.NotBefore = now.Add(in.StartsAfter)
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
	return nil
}

// writeKey writes a file that no one else can read. A service that reads the folder does not find a part
// of it.
func writeKey(name string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	part := filepath.Join(filepath.Dir(name), "."+filepath.Base(name))
	if err := os.WriteFile(part, raw, 0o600); err != nil {
		return err
	}
	if err := os.Rename(part, name); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}

// printDirectory prints the directory of public keys, for hosting elsewhere.
func (p *program) printDirectory(paths []string, now time.Time) error {
	keys, err := readKeys(paths, secure.ReadFile)
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
	_, _ = fmt.Fprintf(p.stderr, "Serve this at %s of the origin that is the agent, with the Content-Type %s.\n", httpsig.DirectoryPath, httpsig.DirectoryType)
	return nil
}
