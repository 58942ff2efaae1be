package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"
	"golang.org/x/net/http/httpguts"

	"fetchd/fetch/signing"
)

// SigV4 configures a provider that signs requests with AWS Signature Version 4. File, or AccessKeyID and
// SecretAccessKey, are required. Nothing else is asked for credentials: no environment, no profile of a user
// and no metadata service.
type SigV4 struct {
	// Region and Service are those of the interface, such as "eu-central-1" and "s3".
	Region  string `yaml:"region"`
	Service string `yaml:"service"`
	// File is the path of a file with credentials in the form that AWS tools share, of at most 16 KiB.
	// It is read again when it changes (checked once a second) and when an origin rejects a signature
	// (at most once a second).
	File string `yaml:"credentials-file"`
	// Profile is the section of the file. Empty means "default".
	Profile string `yaml:"profile"`
	// AccessKeyID, SecretAccessKey and SessionToken are credentials that do not change. A
	// session token is optional.
	AccessKeyID                   string `yaml:"-"`
	SecretAccessKey, SessionToken Secret `yaml:"-"`
}

// Header fields of the signature.
const (
	authorization  = "Authorization"
	amzDate        = "X-Amz-Date"
	amzToken       = "X-Amz-Security-Token" //nolint:gosec // the name of a field
	amzBodyDigest  = "X-Amz-Content-Sha256"
	defaultProfile = "default"
)

// sigV4 signs as configured in a [SigV4].
type sigV4 struct {
	keys            awsKeys
	signer          *v4.Signer
	region, service string
	s3              bool // the path is escaped once, and the digest of the body is a field
}

// awsKeys provides credentials.
type awsKeys interface {
	current() aws.Credentials
	refresh() error
}

// fixedKeys are credentials that do not change.
type fixedKeys aws.Credentials

func (k fixedKeys) current() aws.Credentials { return aws.Credentials(k) }

func (fixedKeys) refresh() error { return ErrRefused }

// signer returns the key, and the names of the fields that it adds.
func (c *SigV4) signer() (*sigV4, []string, error) {
	for _, name := range []string{c.Region, c.Service} {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return nil, nil, fmt.Errorf("auth: aws-sigv4: region %.40q, service %.40q: give both as in ARNs, such as eu-central-1 and s3", c.Region, c.Service)
		}
	}
	k := &sigV4{region: c.Region, service: c.Service, s3: c.Service == "s3" || strings.HasPrefix(c.Service, "s3-") || c.Service == "s3express"}
	k.signer = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = k.s3 })
	names := []string{authorization, amzDate, amzToken, amzBodyDigest} // a caller's digest would be signed too
	var err error
	k.keys, err = c.credentials()
	return k, names, err
}

func (c *SigV4) credentials() (awsKeys, error) {
	fixed := aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: string(c.SecretAccessKey), SessionToken: string(c.SessionToken)}
	switch {
	case c.File == "" && fixed == (aws.Credentials{}):
		return nil, errors.New("auth: aws-sigv4: credentials-file: is missing: give the path of a file with credentials, or access-key-id-env and secret-access-key-env")
	case c.File == "" && c.Profile == "":
		return fixedKeys(fixed), checkKeys(fixed)
	case c.File == "" || fixed != (aws.Credentials{}):
		return nil, errors.New("auth: aws-sigv4: give a credentials file, or an access key and its secret, and a profile only with a file")
	}
	profile := c.Profile
	if profile == "" {
		profile = defaultProfile
	}
	return newKeyFile(c.File, "aws-sigv4: credentials-file", func(text string) (aws.Credentials, error) { return parseProfile(text, profile) })
}

func checkKeys(c aws.Credentials) error {
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return errors.New("auth: aws-sigv4: there is no access key ID, or no secret access key")
	}
	if !httpguts.ValidHeaderFieldValue(c.AccessKeyID) || !httpguts.ValidHeaderFieldValue(c.SessionToken) {
		return errors.New("auth: aws-sigv4: the access key ID or the session token contains a control character")
	}
	return nil
}

// parseProfile returns the credentials in a section of a credentials file.
func parseProfile(text, profile string) (aws.Credentials, error) {
	var c aws.Credentials
	section, found := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSpace(strings.TrimSuffix(name, "]"))
			found = found || section == profile
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		to := map[string]*string{"aws_access_key_id": &c.AccessKeyID, "aws_secret_access_key": &c.SecretAccessKey, "aws_session_token": &c.SessionToken}[strings.TrimSpace(name)]
		if section == profile && to != nil {
			*to = strings.TrimSpace(value)
		}
	}
	if !found {
		return c, fmt.Errorf("auth: aws-sigv4: there is no section [%.40s]", profile)
	}
	return c, checkKeys(c)
}

func (k *sigV4) refresh() error { return k.keys.refresh() }

func (k *sigV4) sign(m *signing.Message) ([]signing.Field, error) {
	query, err := url.ParseQuery(m.URL.RawQuery)
	if err != nil {
		return nil, errors.New("auth: aws-sigv4: the query has no canonical form: it has a wrong escape, or a semicolon")
	}
	if !isSorted(query) {
		return nil, errors.New("auth: aws-sigv4: AWS sorts the parameters of the query after they are escaped, and its SDK before: the signature would be wrong")
	}
	sum := sha256.Sum256(m.Body)
	digest := hex.EncodeToString(sum[:])
	// The signer changes the request. Without a scheme it does not remove a port from the host, which is sent with it.
	req := &http.Request{Method: m.Method, Host: m.Authority, URL: k.canonicalURL(m.URL), Header: make(http.Header)}
	for name, values := range m.Header {
		if isSigned(name) {
			req.Header[name] = slices.Clone(values)
		}
	}
	if k.s3 {
		req.Header[amzBodyDigest] = []string{digest}
	}
	if err := k.signer.SignHTTP(context.Background(), k.keys.current(), req, digest, k.service, k.region, m.Time); err != nil {
		return nil, errors.New("auth: aws-sigv4: the signer failed")
	}
	var fields []signing.Field
	for _, name := range []string{authorization, amzDate, amzToken, amzBodyDigest} {
		for _, value := range req.Header[name] {
			fields = append(fields, signing.Field{Name: name, Value: value})
		}
	}
	return fields, nil
}

// isSorted reports whether the SDK sorts the parameters of a query as AWS does
// (https://github.com/aws/aws-sdk-go-v2/issues/2969). It sorts the values of the query.
func isSorted(query url.Values) bool {
	for _, values := range query {
		slices.Sort(values)
	}
	text := strings.NewReplacer("+", "%20", "=", "\x00").Replace(query.Encode()) // a name precedes longer ones
	return slices.IsSorted(strings.Split(text, "&"))
}

// canonicalURL returns a URL whose path is in the form that is signed, before the signer escapes it for other
// services than S3.
func (k *sigV4) canonicalURL(u *url.URL) *url.URL {
	canonical := &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if k.s3 {
		canonical.RawPath = httpbinding.EscapePath(u.Path, false)
		return canonical
	}
	canonical.RawPath = cleanPath(u.EscapedPath())
	canonical.Path, _ = url.PathUnescape(canonical.RawPath) // it has the escapes of u
	return canonical
}

// cleanPath removes empty segments and dot segments.
func cleanPath(p string) string {
	cleaned := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}

// isSigned reports whether a field is signed if the request has it. Others may be changed on their way.
func isSigned(name string) bool {
	switch name {
	case "Cache-Control", "Date", "Expires", "Range":
		return true
	case "Content-Length": // it is that of the body, whose digest is signed
		return false
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "If-") || strings.HasPrefix(name, "X-Amz-")
}
