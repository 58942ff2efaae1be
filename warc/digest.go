package warc

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// Algorithm is the label of a digest algorithm.
type Algorithm string

// The algorithms that this package computes.
const (
	SHA1   Algorithm = "sha1"
	SHA256 Algorithm = "sha256"
)

// Size returns the length of a digest in bytes, or zero if the algorithm is not known.
func (a Algorithm) Size() int {
	switch a {
	case SHA1:
		return sha1.Size
	case SHA256:
		return sha256.Size
	}
	return 0
}

func (a Algorithm) hash() hash.Hash {
	switch a {
	case SHA1:
		return sha1.New()
	case SHA256:
		return sha256.New()
	}
	return nil
}

// Digest is a labelled digest, such as "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ".
type Digest string

// NewDigest returns the digest with that sum: in base32 for SHA-1, in hexadecimal for any other
// algorithm.
func NewDigest(a Algorithm, sum []byte) Digest {
	if a == SHA1 {
		return Digest(base32.StdEncoding.AppendEncode(append(make([]byte, 0, 64), "sha1:"...), sum))
	}
	return Digest(string(a) + ":" + hex.EncodeToString(sum))
}

// Algorithm returns the label in lower case, with "sha-1" and "sha-256" as "sha1" and "sha256".
func (d Digest) Algorithm() Algorithm {
	label, _, _ := strings.Cut(string(d), ":")
	label = strings.ToLower(label)
	if rest, ok := strings.CutPrefix(label, "sha-"); ok {
		label = "sha" + rest
	}
	return Algorithm(label)
}

// Sum returns the bytes of the digest. It reports false if the algorithm is not known or the value
// is not a digest of that algorithm.
func (d Digest) Sum() ([]byte, bool) {
	_, value, _ := strings.Cut(string(d), ":")
	size := d.Algorithm().Size()
	if size == 0 || len(value) > 2*size {
		return nil, false
	}
	if len(value) == 2*size {
		sum, err := hex.DecodeString(value)
		return sum, err == nil
	}
	value = strings.ToUpper(strings.TrimRight(value, "="))
	sum, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(value)
	return sum, err == nil && len(sum) == size
}

// Equal reports whether both digests have the same algorithm and sum, whatever their encoding.
// Digests of an algorithm that is not known are equal if their text is.
func (d Digest) Equal(e Digest) bool {
	a, ok := d.Sum()
	b, ok2 := e.Sum()
	if !ok || !ok2 {
		return d == e
	}
	return d.Algorithm() == e.Algorithm() && bytes.Equal(a, b)
}

// check returns an error if d is not a labelled digest, or not one of its algorithm.
func (d Digest) check() error {
	label, value, ok := strings.Cut(string(d), ":")
	if isUsual(label, value) {
		return nil
	}
	if !ok || !isToken(label) || !isDigestValue(value) {
		return fmt.Errorf("%.80q is not a digest", string(d))
	}
	if _, ok := d.Sum(); !ok && d.Algorithm().Size() != 0 {
		return fmt.Errorf("%.80q is not a %s digest", string(d), d.Algorithm())
	}
	return nil
}

// isUsual reports whether a digest is a SHA-1 as [NewDigest] writes it.
func isUsual(label, value string) bool {
	const digits = 32 // of 160 bits
	if label != string(SHA1) || len(value) != digits {
		return false
	}
	for i := range len(value) {
		if c := value[i]; (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// isDigestValue reports whether s is a token, apart from "=" and "/". The grammar does not allow
// these two, but padding and base64 need them, and files contain them.
func isDigestValue(s string) bool {
	for part := range strings.FieldsFuncSeq(s, func(c rune) bool { return c == '=' || c == '/' }) {
		if !isToken(part) {
			return false
		}
	}
	return s != ""
}

// Digester computes the digests of a block that is written to it. Use it while you spool a block.
type Digester struct {
	block     hash.Hash
	payload   *payloadSum // nil: the block is the payload
	algorithm Algorithm
	length    int64
	sum       []byte
}

// NewDigester returns a Digester for the algorithm, which is SHA1 or SHA256. If http is true, the
// block is an HTTP message, and its payload is the body behind the first empty line. If that is in
// whole chunks, and has no other transfer coding, the payload is what the chunks contain. Otherwise
// the block is the payload.
func NewDigester(a Algorithm, http bool) (*Digester, error) {
	if a.Size() == 0 {
		return nil, fmt.Errorf("warc: the digest algorithm %.40q is not known", string(a))
	}
	d := &Digester{block: a.hash(), algorithm: a}
	if http {
		d.payload = &payloadSum{algorithm: a, sent: a.hash()}
	}
	return d, nil
}

// Reset starts another block.
func (d *Digester) Reset() {
	d.block.Reset()
	if d.payload != nil {
		d.payload.reset(true)
	}
	d.length = 0
}

// Write adds p to the block. It never fails.
func (d *Digester) Write(p []byte) (int, error) {
	d.length += int64(len(p))
	d.block.Write(p)
	if d.payload != nil {
		d.payload.write(p)
	}
	return len(p), nil
}

// Length returns the length of the block so far.
func (d *Digester) Length() int64 { return d.length }

// Block returns the digest of the block so far.
func (d *Digester) Block() Digest { return d.digest(d.block) }

// Payload returns the digest of the payload so far.
func (d *Digester) Payload() Digest {
	if d.payload == nil {
		return d.Block()
	}
	return d.digest(d.payload.sum())
}

func (d *Digester) digest(h hash.Hash) Digest {
	d.sum = h.Sum(d.sum[:0])
	return NewDigest(d.algorithm, d.sum)
}
