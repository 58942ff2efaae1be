// Package signkeys reads the keys that sign requests (RFC 9421), and has the flags with which a program signs
// as Web Bot Auth.
package signkeys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fetchd/fetch/auth/httpsig"
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
