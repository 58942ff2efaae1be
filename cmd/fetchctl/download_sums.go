package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"fetchd/internal/cli"
)

// readSums reads a list of digests: file name → SHA-256 in hex. It is nil where
// there is no list.
func readSums(ctx context.Context, file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	if file == "-" {
		return nil, cli.UsageError("--sha256sums", "must be a file")
	}
	text, err := readInput(ctx, file, nil, maxList)
	if err != nil {
		return nil, inputError("--sha256sums", err)
	}
	sums, line := parseSums(string(text))
	if line != 0 {
		return nil, cli.UsageError("--sha256sums", fmt.Sprintf("%s:%d is no line of sha256sum, or contradicts one before", file, line))
	}
	return sums, nil
}

// parseSums reads lines "DIGEST  NAME" or "DIGEST *NAME". Of a path the last
// segment counts. line is the first that cannot be read, or 0.
func parseSums(text string) (sums map[string]string, line int) {
	sums = make(map[string]string)
	n := 0
	for l := range strings.Lines(text) {
		n++
		l = strings.TrimRight(l, "\r\n")
		if strings.TrimSpace(l) == "" || l[0] == '#' {
			continue
		}
		l, escaped := strings.CutPrefix(l, `\`)
		digest, name, ok := strings.Cut(l, " ")
		raw, err := hex.DecodeString(digest)
		if !ok || err != nil || len(raw) != sha256.Size || len(name) < 2 || name[0] != ' ' && name[0] != '*' {
			return nil, n
		}
		name = name[1:]
		if escaped {
			name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
		}
		name, digest = path.Base(name), strings.ToLower(digest)
		if other, twice := sums[name]; twice && other != digest {
			return nil, n
		}
		sums[name] = digest
	}
	return sums, 0
}

// digestOf is the SHA-256 of what r holds, in hex. It stops when ctx ends.
func digestOf(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	buf := make([]byte, 256<<10)
	for ctx.Err() == nil {
		n, err := r.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash takes everything
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", ctx.Err()
}
