package stores

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/internal/version"
	"fetchd/stores/archive"
)

// archiveScheme is how the URL of a store for records begins. The rest is the URL of a store for
// bodies.
const archiveScheme = "warc+"

// maxUploaded limits max-file-bytes of a bucket. The last record of a file exceeds it, and an object
// has at most 48.8 GiB.
const maxUploaded = 40 << 30

// archiveConfig is what only stores for records have.
type archiveConfig struct {
	SpoolDir      string        `yaml:"spool-dir"`
	MaxFileBytes  int64         `yaml:"max-file-bytes"`
	MaxFileAge    time.Duration `yaml:"max-file-age"`
	MaxSpoolBytes int64         `yaml:"max-spool-bytes"`
	Redact        []string      `yaml:"redact"`
	Operator      string        `yaml:"operator"`
	FileMode      string        `yaml:"file-mode"`
}

// isZero reports whether no key is set.
func (c *archiveConfig) isZero() bool {
	return c.SpoolDir == "" && c.MaxFileBytes == 0 && c.MaxFileAge == 0 && c.MaxSpoolBytes == 0 && c.Redact == nil && c.Operator == "" && c.FileMode == ""
}

var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (c *archiveConfig) check() error {
	switch {
	case c.MaxFileBytes < 0 || c.MaxFileAge < 0 || c.MaxSpoolBytes < 0:
		return errors.New("max-file-bytes, max-file-age or max-spool-bytes is negative: give more than zero, or leave it out")
	case c.MaxFileBytes > maxUploaded:
		return fmt.Errorf("max-file-bytes is %d: give at most %d", c.MaxFileBytes, int64(maxUploaded))
	}
	for _, name := range c.Redact {
		if !fieldName.MatchString(name) {
			return fmt.Errorf("redact: %.80q is not the name of a header field", name)
		}
	}
	return nil
}

// fileMode returns the mode of new files, or 0 if none is set.
func (c *archiveConfig) fileMode() (fs.FileMode, error) {
	if c.FileMode == "" {
		return 0, nil
	}
	mode, err := strconv.ParseUint(c.FileMode, 8, 32)
	if err != nil || mode > 0o777 || mode&0o600 != 0o600 {
		return 0, fmt.Errorf("file-mode: %.20q: give an octal mode from 0600 to 0777 with which the service can read and write, such as 0640", c.FileMode)
	}
	return fs.FileMode(mode), nil
}

// openArchive opens a store for records. store is nil unless files are uploaded to it.
func openArchive(s *Set, name string, c Config, a archiveConfig) (_ *archive.Archive, store *Store, err error) {
	if err := a.check(); err != nil {
		return nil, nil, err
	}
	mode, err := a.fileMode()
	if err != nil {
		return nil, nil, err
	}
	if c.MaxObjectBytes != 0 {
		return nil, nil, errors.New("max-object-bytes is for stores for bodies: give max-file-bytes, or leave it out")
	}
	to := archive.Config{Dir: a.SpoolDir, MaxFileBytes: a.MaxFileBytes, MaxFileAge: a.MaxFileAge, MaxSpoolBytes: a.MaxSpoolBytes, FileMode: mode,
		Redact: slices.Clone(a.Redact), Software: "fetchd " + version.String(), Operator: a.Operator, Logger: s.logger}
	c.URL = strings.TrimPrefix(c.URL, archiveScheme)
	switch {
	case strings.HasPrefix(c.URL, "file:"):
		to.Dir, err = archiveDir(c, a)
	case strings.HasPrefix(c.URL, "s3:"):
		if a.SpoolDir == "" {
			return nil, nil, errors.New("spool-dir is missing: name a directory where files are written before they are uploaded")
		}
		store, err = open(name, c)
	default:
		err = errors.New("the URL must be warc+file:///DIR or warc+s3://BUCKET?region=REGION")
	}
	if err != nil {
		return nil, nil, err
	}
	if store != nil {
		to.Upload = store.upload
	}
	records, err := archive.Open(name, to)
	if err != nil && store != nil {
		store.backend.close()
	}
	return records, store, err
}

// archiveDir returns the directory of a store for records that are not uploaded.
func archiveDir(c Config, a archiveConfig) (string, error) {
	switch {
	case c.Prefix != "":
		return "", errors.New("prefix is for buckets: name the directory in url")
	case a.SpoolDir != "":
		return "", errors.New("spool-dir is for buckets: a directory has its spools in itself")
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", errors.New("the URL cannot be parsed: give warc+file:///DIR")
	}
	return filePath(u, c)
}

// filePath returns the directory that a URL names.
func filePath(u *url.URL, c Config) (string, error) {
	if u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", errors.New("the URL must be file:///DIR, without a host and parameters")
	}
	if c.AccessKeyID != "" || c.SecretAccessKey != "" || c.SessionToken != "" || c.CAs != nil {
		return "", errors.New("a directory has no credentials and no authorities: remove them")
	}
	if runtime.GOOS == "windows" {
		return strings.TrimPrefix(u.Path, "/"), nil // of file:///C:/DIR
	}
	return u.Path, nil
}

// upload stores a whole file under its name. It holds one part in memory, which no caller is charged
// for: an archive uploads one file at a time.
func (s *Store) upload(ctx context.Context, name string, f *os.File, size int64) error {
	u, err := s.Begin(ctx, Object{Key: name, ContentType: "application/warc", Size: size})
	if err != nil {
		return err
	}
	defer u.Abort()
	digest := sha256.New()
	for {
		space, err := u.Space()
		if err != nil {
			return err
		}
		n, err := f.Read(space)
		digest.Write(space[:n])
		if err := u.Wrote(n); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	_, err = u.Commit(hex.EncodeToString(digest.Sum(nil)))
	return err
}
