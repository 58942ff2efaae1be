package httpsig

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"time"
)

// Names of algorithms in the registry of RFC 9421.
const (
	Ed25519   = "ed25519"
	ECDSAP256 = "ecdsa-p256-sha256"
	HMAC      = "hmac-sha256"
)

// minSecret is the minimum size of an HMAC key in bytes. Whoever sees a signature can try shorter ones.
const minSecret = 16

// maxTime is the maximum of times in a JWK, in the year 5138.
const maxTime = 1e11

// Key signs. It formats and logs as its algorithm and id.
type Key struct {
	// Algorithm is the name of the algorithm in the registry of RFC 9421.
	Algorithm string
	// ID is the keyid parameter. By default it is the JWK thumbprint (RFC 7638) of a key
	// pair, and empty for a secret.
	ID string
	// NotBefore and NotAfter limit when the key signs. Zero means no limit.
	NotBefore, NotAfter time.Time

	thumbprint string
	private    crypto.Signer
	secret     []byte
}

// String implements fmt.Stringer.
func (k Key) String() string { return k.Algorithm + " " + k.ID }

// Format implements fmt.Formatter, so that no verb shows the key.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.String())) }

// LogValue implements slog.LogValuer.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// jwk is a JSON Web Key (RFC 7517, 8037). The order of the fields is that of a directory.
type jwk struct {
	Kty string  `json:"kty"`
	Crv string  `json:"crv,omitempty"`
	Kid string  `json:"kid,omitempty"`
	X   string  `json:"x,omitempty"`
	Y   string  `json:"y,omitempty"`
	D   string  `json:"d,omitempty"`
	K   string  `json:"k,omitempty"`
	Use string  `json:"use,omitempty"`
	Nbf float64 `json:"nbf,omitempty"`
	Exp float64 `json:"exp,omitempty"`
}

// NewKey returns a new key pair for Ed25519 or ECDSA P-256.
func NewKey(algorithm string) (*Key, error) {
	switch algorithm {
	case Ed25519:
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
		return pair(private)
	case ECDSAP256:
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
		return pair(private)
	}
	return nil, fmt.Errorf("algorithm %.40q: give %s or %s", algorithm, Ed25519, ECDSAP256)
}

// ParseKey parses a private key in PEM (PKCS #8, or SEC 1 for elliptic curves), a JWK of
// type OKP, EC or oct, or a secret for HMAC in base64.
func ParseKey(raw []byte) (*Key, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case bytes.HasPrefix(raw, []byte("-----BEGIN")):
		return parsePEM(raw)
	case bytes.HasPrefix(raw, []byte("{")):
		return parseJWK(raw)
	}
	secret, err := base64.StdEncoding.DecodeString(string(raw))
	if err != nil {
		return nil, errors.New("the key is neither PEM (PKCS #8), nor a JWK, nor a secret in base64")
	}
	return shared(secret)
}

func parsePEM(raw []byte) (*Key, error) {
	block, rest := pem.Decode(raw)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the key is not one block of PEM")
	}
	var private any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		private, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, errors.New("the PEM block is not a PRIVATE KEY: use PKCS #8 without a password")
	}
	if err != nil {
		return nil, errors.New("the PEM block is not a valid private key") // the cause may quote the key
	}
	return pair(private)
}

func parseJWK(raw []byte) (*Key, error) {
	var j jwk
	if json.Unmarshal(raw, &j) != nil {
		return nil, errors.New("the JWK is not valid JSON, or a member has the wrong type")
	}
	bad := errors.New("the JWK is not a private key of type OKP (Ed25519), EC (P-256) or oct")
	secret := j.D
	if j.Kty == "oct" {
		secret = j.K
	}
	d, err := base64.RawURLEncoding.DecodeString(secret)
	if err != nil {
		return nil, bad
	}
	if max(j.Nbf, j.Exp) > maxTime || min(j.Nbf, j.Exp) < 0 {
		return nil, errors.New("the JWK has a time (nbf, exp) that is not in seconds since 1970")
	}
	var k *Key
	switch {
	case j.Kty == "OKP" && j.Crv == "Ed25519" && len(d) == ed25519.SeedSize:
		k, err = pair(ed25519.NewKeyFromSeed(d))
	case j.Kty == "EC" && j.Crv == "P-256":
		private, invalid := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
		if invalid != nil {
			return nil, bad
		}
		k, err = pair(private)
	case j.Kty == "oct":
		k, err = shared(d)
	default:
		return nil, bad
	}
	if err != nil {
		return nil, err
	}
	if public := k.public(); j.X != "" && (public.X != j.X || public.Y != j.Y) {
		return nil, errors.New("the private part of the JWK does not belong to its public part")
	}
	if j.Kid != "" {
		k.ID = j.Kid
	}
	if j.Nbf > 0 {
		k.NotBefore = time.Unix(int64(j.Nbf), 0)
	}
	if j.Exp > 0 {
		k.NotAfter = time.Unix(int64(j.Exp), 0)
	}
	return k, nil
}

// shared returns a key for HMAC.
func shared(secret []byte) (*Key, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the secret for HMAC has %d bytes, and the minimum is %d: agree on a longer one with the origin, such as 32 random bytes in base64", len(secret), minSecret)
	}
	return &Key{Algorithm: HMAC, secret: secret}, nil
}

// pair returns a key that has a public part.
func pair(private any) (*Key, error) {
	k := new(Key)
	switch p := private.(type) {
	case ed25519.PrivateKey:
		k.Algorithm, k.private = Ed25519, p
	case *ecdsa.PrivateKey:
		if p.Curve != elliptic.P256() {
			return nil, errors.New("the key is not on the curve P-256")
		}
		k.Algorithm, k.private = ECDSAP256, p
	default:
		return nil, errors.New("the key is not for Ed25519 or ECDSA P-256: RSA and other kinds cannot sign here")
	}
	j := k.public()
	text := `{"crv":"` + j.Crv + `","kty":"` + j.Kty + `","x":"` + j.X + `"`
	if j.Y != "" {
		text += `,"y":"` + j.Y + `"`
	}
	sum := sha256.Sum256([]byte(text + "}"))
	k.thumbprint = base64.RawURLEncoding.EncodeToString(sum[:])
	k.ID = k.thumbprint
	return k, nil
}

// public returns the public part of a key pair. A secret has none.
func (k *Key) public() jwk {
	if k.private == nil {
		return jwk{}
	}
	encode := base64.RawURLEncoding.EncodeToString
	switch p := k.private.Public().(type) {
	case ed25519.PublicKey:
		return jwk{Kty: "OKP", Crv: "Ed25519", X: encode(p)}
	case *ecdsa.PublicKey:
		point, err := p.Bytes()
		if err == nil {
			return jwk{Kty: "EC", Crv: "P-256", X: encode(point[1:33]), Y: encode(point[33:65])}
		}
	}
	return jwk{}
}

// JWK returns the private key of a pair as a JWK, with NotBefore and NotAfter.
func (k *Key) JWK() ([]byte, error) {
	j := k.published()
	switch p := k.private.(type) {
	case ed25519.PrivateKey:
		j.D = base64.RawURLEncoding.EncodeToString(p.Seed())
	case *ecdsa.PrivateKey:
		d, err := p.Bytes()
		if err != nil {
			return nil, fmt.Errorf("encode the key: %w", err)
		}
		j.D = base64.RawURLEncoding.EncodeToString(d)
	default:
		return nil, errors.New("a secret is not a key pair")
	}
	return json.MarshalIndent(j, "", "  ")
}

// published returns the public part as it is in a directory.
func (k *Key) published() jwk {
	j := k.public()
	j.Kid, j.Use = k.thumbprint, "sig"
	if !k.NotBefore.IsZero() {
		j.Nbf = float64(k.NotBefore.Unix())
	}
	if !k.NotAfter.IsZero() {
		j.Exp = float64(k.NotAfter.Unix())
	}
	return j
}

// sign returns the signature of a base.
func (k *Key) sign(text string) ([]byte, error) {
	switch p := k.private.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(p, []byte(text)), nil
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256([]byte(text))
		r, s, err := ecdsa.Sign(rand.Reader, p, sum[:])
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		return append(fixed(r), fixed(s)...), nil
	}
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(text))
	return mac.Sum(nil), nil
}

// fixed returns an integer of an ECDSA signature in 32 bytes.
func fixed(i *big.Int) []byte { return i.FillBytes(make([]byte, 32)) }

// usable reports whether the key may sign at a time.
func (k *Key) usable(at time.Time) bool { return !at.Before(k.NotBefore) && !k.expired(at) }

// expired reports whether the key is not to be used any more.
func (k *Key) expired(at time.Time) bool { return !k.NotAfter.IsZero() && !at.Before(k.NotAfter) }

// maxNamed is the maximum number of keys in an error.
const maxNamed = 3

// Current returns the key that signs at a time. If none is valid, the error has their ids, and when they ended
// or start.
func Current(keys []*Key, at time.Time) (*Key, error) { return current(keys, at, Choice{}) }

// current is [Current] for the keys that a choice asks for.
func current(keys []*Key, at time.Time, choice Choice) (*Key, error) {
	if k := newest(keys, at, choice.fits); k != nil {
		return k, nil
	}
	var texts []string
	for _, k := range keys {
		text := "ended at " + k.NotAfter.UTC().Format(time.RFC3339)
		if !k.expired(at) {
			text = "starts at " + k.NotBefore.UTC().Format(time.RFC3339)
		}
		if choice.fits(k) {
			texts = append(texts, fmt.Sprintf("key %.60q %s", cmp.Or(k.ID, k.Algorithm), text))
		}
	}
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return nil, fmt.Errorf("no key is valid now: %s", strings.Join(texts, ", "))
}

// newest returns the usable key with the latest NotBefore, and among equals the last one.
// accept filters the keys.
func newest(keys []*Key, at time.Time, accept func(*Key) bool) *Key {
	var best *Key
	for _, k := range keys {
		if k.usable(at) && accept(k) && (best == nil || !k.NotBefore.Before(best.NotBefore)) {
			best = k
		}
	}
	return best
}
