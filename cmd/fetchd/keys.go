package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

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
