// Package storesfile reads the file in which an operator names stores and their credentials.
package storesfile

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"fetchd/internal/stores"
)

// Entry is a store of the file.
type Entry struct {
	stores.Config
	Callers []string // that may use it; empty means every caller
}

// entry is an Entry as it is written.
type entry struct {
	URL             string   `yaml:"url"`
	Prefix          string   `yaml:"prefix"`
	Callers         []string `yaml:"callers"`
	MaxObjectBytes  int64    `yaml:"max_object_bytes"`
	AccessKeyID     string   `yaml:"access_key_id"`
	SecretAccessKey string   `yaml:"secret_access_key"`
	SecretFile      string   `yaml:"secret_access_key_file"`
	SessionToken    string   `yaml:"session_token"`
	CAFile          string   `yaml:"ca_file"`
}

// Read returns the stores of the file, by name. It makes no request. The error says what is wrong,
// without secrets.
func Read(path string) (map[string]Entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f struct {
		Stores map[string]entry `yaml:"stores"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, whereOf(err))
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: has a second document: put all stores into one", path)
	}
	entries := make(map[string]Entry)
	for name, written := range f.Stores {
		e, err := written.entry()
		if err != nil {
			return nil, fmt.Errorf("%s: stores: %.60q: %w", path, name, err)
		}
		entries[name] = e
	}
	return entries, nil
}

func (w entry) entry() (Entry, error) {
	e := Entry{Callers: w.Callers, Config: stores.Config{
		URL: w.URL, Prefix: w.Prefix, MaxObjectBytes: w.MaxObjectBytes,
		AccessKeyID: w.AccessKeyID, SecretAccessKey: w.SecretAccessKey, SessionToken: w.SessionToken,
	}}
	if w.URL == "" {
		return Entry{}, errors.New("has no url: give file:///DIR or s3://BUCKET?region=REGION")
	}
	if w.Callers != nil && (len(w.Callers) == 0 || slices.Contains(w.Callers, "")) {
		return Entry{}, fmt.Errorf("callers: %.60q: name the callers, or leave callers out to allow every caller", w.Callers)
	}
	if w.SecretFile != "" {
		if w.SecretAccessKey != "" {
			return Entry{}, errors.New("has secret_access_key and secret_access_key_file: give one of the two")
		}
		raw, err := os.ReadFile(w.SecretFile)
		if err != nil {
			return Entry{}, fmt.Errorf("secret_access_key_file: %w", err)
		}
		if e.SecretAccessKey = strings.TrimSpace(string(raw)); e.SecretAccessKey == "" {
			return Entry{}, fmt.Errorf("secret_access_key_file: %s is empty", w.SecretFile)
		}
	}
	if w.CAFile != "" {
		raw, err := os.ReadFile(w.CAFile)
		if err != nil {
			return Entry{}, fmt.Errorf("ca_file: %w", err)
		}
		if e.CAs = x509.NewCertPool(); !e.CAs.AppendCertsFromPEM(raw) {
			return Entry{}, fmt.Errorf("ca_file: %s has no certificate in PEM", w.CAFile)
		}
	}
	return e, nil
}

// lineNumber is how the decoder tells where.
var lineNumber = regexp.MustCompile(`line \d+`)

// whereOf returns the lines of a decoder error, without the content, which may be a secret.
func whereOf(err error) string {
	lines := lineNumber.FindAllString(fmt.Sprint(err), -1)
	where := "is not usable"
	if len(lines) > 0 {
		where = strings.Join(slices.Compact(lines), ", ") + ": not usable"
	}
	return where + ": want YAML with stores, and in them url, prefix, callers, max_object_bytes, access_key_id, secret_access_key or secret_access_key_file, session_token and ca_file, each once"
}
