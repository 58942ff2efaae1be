package stores

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"fetchd/internal/budget"
)

const (
	// s3Memory is charged for an upload to a bucket in addition to its pieces: what the SDK and the
	// connection hold.
	s3Memory = 128 << 10
	// partMemory is charged for what is kept of each part that was sent.
	partMemory = 512
	maxParts   = 10_000 // the limit of S3

	requestLimit = 20 * time.Second
	shortLimit   = 5 * time.Second // of HeadObject, and of AbortMultipartUpload in the background
	abortPause   = time.Second
	maxTries     = 3
	maxStalls    = 2                      // tries that run into their limit
	stallTime    = 10 * time.Second       // without a response, after which a store has failed although the context ended
	firstWait    = 200 * time.Millisecond // doubled before each further try

	maxHeaders = 16 << 10 // of a response
	maxBody    = 64 << 10
	maxList    = 1 << 20 // of a list of uploads
	maxText    = 300
	maxCode    = 64
	maxETag    = 128
	maxID      = 1024
	idleConns  = 64
)

// bucket is a store in an S3 bucket.
type bucket struct {
	store   *Store
	name    *string
	client  *s3.Client
	conns   *http.Transport
	secrets []string // that no text contains
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

const remedy = "give s3://BUCKET?region=REGION, and endpoint=https://HOST and use_path_style=true if the store needs them"

// place is what the URL of a bucket contains.
type place struct {
	bucket, region string
	endpoint       *string
	pathStyle      bool
}

func parseS3(u *url.URL) (place, error) {
	p := place{bucket: u.Host}
	if !bucketName.MatchString(u.Host) {
		return p, fmt.Errorf("the URL has the bucket %.70q, which is not a valid name: %s", u.Host, remedy)
	}
	if u.Path != "" && u.Path != "/" {
		return p, fmt.Errorf("the URL has the path %.70q: give it as the prefix of the store", u.Path)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return p, errors.New("the parameters of the URL cannot be parsed: " + remedy)
	}
	for name, values := range query {
		if len(values) != 1 {
			return p, fmt.Errorf("the URL has the parameter %.40q more than once: give it once", name)
		}
		value := values[0]
		switch name {
		case "region":
			p.region = value
		case "endpoint":
			if p.endpoint, err = parseEndpoint(value); err != nil {
				return p, err
			}
		case "use_path_style":
			if value != "true" && value != "false" {
				return p, errors.New("the parameter use_path_style of the URL must be true or false")
			}
			p.pathStyle = value == "true"
		default:
			return p, fmt.Errorf("the URL has the parameter %.40q, which is not known: %s; credentials belong into access-key-id, "+
				"secret-access-key and session-token of the stores file", name, remedy)
		}
	}
	if !regionName.MatchString(p.region) {
		return p, errors.New("the parameter region of the URL is missing or not a valid name: " + remedy)
	}
	return p, nil
}

func parseEndpoint(value string) (*string, error) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, errors.New("the parameter endpoint of the URL must be https://HOST or https://HOST:PORT, without a user, a path and parameters")
	}
	return aws.String(u.Scheme + "://" + u.Host), nil
}

// openS3 builds the client by hand, so that nothing of the environment, of profiles and of metadata
// services is used.
func openS3(s *Store, u *url.URL, c Config) (backend, error) {
	p, err := parseS3(u)
	if err != nil {
		return nil, err
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return nil, errors.New("the credentials are missing: give access-key-id, and secret-access-key or secret-access-key-file; nothing is read from the environment")
	}
	for _, text := range []string{c.AccessKeyID, c.SecretAccessKey, c.SessionToken} {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, errors.New("a credential contains a space or a character that is not ASCII: remove it")
		}
	}
	b := &bucket{store: s, name: aws.String(p.bucket), secrets: []string{c.SecretAccessKey, c.SessionToken}}
	b.conns = &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.CAs},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeaders,
		Protocols:              new(http.Protocols),
	}
	b.conns.Protocols.SetHTTP1(true)
	b.client = s3.New(s3.Options{
		Region:       p.region,
		BaseEndpoint: p.endpoint,
		UsePathStyle: p.pathStyle,
		Credentials:  credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
		HTTPClient: &http.Client{
			Transport:     bounded{b.conns},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Retryer:                        aws.NopRetryer{}, // request repeats
		RequestChecksumCalculation:     aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:     aws.ResponseChecksumValidationWhenRequired,
		ContinueHeaderThresholdBytes:   -1, // Expect: 100-continue costs a round trip for each part
		DisableMultiRegionAccessPoints: true,
		DisableS3ExpressSessionAuth:    aws.Bool(true),
	})
	return b, nil
}

func (b *bucket) namesLate() bool { return false }
func (b *bucket) maxSize() int64  { return maxParts * partSize }
func (b *bucket) close()          { b.conns.CloseIdleConnections() }

// bounded limits the bodies of responses, because the SDK reads those of errors completely.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body is the connection, which no context ends
		return nil, errors.Join(errors.New("the store switched to another protocol"), resp.Body.Close())
	}
	most := int64(maxBody)
	if r.Method == http.MethodGet {
		most = maxList
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, most), resp.Body}
	return resp, nil
}

// request makes a request, at most tries times, but only twice if the store does not respond within
// limit: a fetch of 60 s must see that the store is down. maybe reports whether a try that failed may
// have been carried out. The error is an *Error, or the cause of ctx.
func (b *bucket) request(ctx context.Context, op string, tries int, limit time.Duration, do func(context.Context) error) (maybe bool, err error) {
	var silent time.Duration // in tries without a response
	for try := 1; ; try++ {
		began := time.Now()
		err := b.try(ctx, limit, do)
		if err == nil {
			return false, nil
		}
		if ctx.Err() != nil || errors.Is(err, errLimit) {
			silent += time.Since(began)
		}
		if ctx.Err() != nil {
			if silent >= stallTime {
				b.store.countError()
				b.store.breaker.failed()
			}
			return true, context.Cause(ctx)
		}
		b.store.countError()
		failure := b.failure(op, err)
		dial, ok := errors.AsType[*net.OpError](err)
		sent := !ok || dial.Op != "dial"
		repeat := failure.repeatable()
		maybe = maybe || repeat && sent && failure.status != http.StatusTooManyRequests
		if !repeat || try >= tries || silent >= maxStalls*limit {
			return maybe, failure
		}
		wait := time.NewTimer(firstWait << (try - 1))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			if silent >= stallTime {
				b.store.breaker.failed()
			}
			return maybe, context.Cause(ctx)
		}
	}
}

// repeatable reports whether another try may succeed.
func (e *Error) repeatable() bool {
	return e.status == 0 || e.status >= http.StatusInternalServerError || e.status == http.StatusTooManyRequests ||
		e.status == http.StatusRequestTimeout || e.code == "RequestTimeout"
}

func (b *bucket) try(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errLimit) {
		return errLimit
	}
	return err
}

// failure describes an error of the SDK.
func (b *bucket) failure(op string, err error) *Error {
	e := &Error{store: b.store.name, op: op, reason: ReasonError, err: err}
	if timedOut(err) {
		e.reason = ReasonTimeout
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		e.code = clean(api.ErrorCode(), maxCode, b.secrets...)
	}
	// A successful status does not help if the rest of the response is not valid.
	if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && resp.HTTPStatusCode() >= http.StatusMultipleChoices {
		e.status = resp.HTTPStatusCode()
	}
	e.down = down(e.status, e.code)
	e.text = clean(fmt.Sprint(withoutURL(err)), maxText, b.secrets...)
	return e
}

// wholeStore are the codes of errors that are due to the bucket, the account, the credentials or the
// service. CompleteMultipartUpload sends them with the status 200, too.
var wholeStore = []string{"AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId",
	"InternalError", "InvalidSecurity", "InvalidToken", "NoSuchBucket", "NotSignedUp", "PermanentRedirect", "QuotaExceeded", "RequestTimeout",
	"RequestTimeTooSkewed", "ServiceUnavailable", "SignatureDoesNotMatch", "SlowDown", "TokenRefreshRequired", "UserSuspended"}

// down reports whether a response shows that the store is down. Neither a status nor a code means that
// there was no valid one. An error that may be about one object, such as AccessDenied, does not:
// callers choose keys, and one of them must not close the store to others.
func down(status int, code string) bool {
	return status == 0 && code == "" || status >= http.StatusInternalServerError || status == http.StatusRequestTimeout ||
		status == http.StatusTooManyRequests || slices.Contains(wholeStore, code)
}

func (b *bucket) begin(key string, o Object, memory *budget.Lease) (sink, error) {
	if !memory.Grow(budget.Body, s3Memory) {
		return nil, budget.ErrRefused
	}
	return newS3Sink(b, key, o, memory), nil
}

// clean aborts multipart uploads below the prefix that began before a time.
func (b *bucket) clean(ctx context.Context, prefix string, before time.Time) (n int, err error) {
	in := &s3.ListMultipartUploadsInput{Bucket: b.name, Prefix: aws.String(prefix)}
	for {
		var page *s3.ListMultipartUploadsOutput
		if _, err := b.request(ctx, "ListMultipartUploads", maxTries, requestLimit, func(ctx context.Context) (err error) {
			page, err = b.client.ListMultipartUploads(ctx, in)
			return err
		}); err != nil {
			return n, err
		}
		for _, u := range page.Uploads {
			key, id := aws.ToString(u.Key), aws.ToString(u.UploadId)
			if !strings.HasPrefix(key, prefix) || key == "" || id == "" || u.Initiated == nil || !u.Initiated.Before(before) {
				continue
			}
			if err := b.abort(ctx, key, id, maxTries, requestLimit); err != nil {
				return n, err
			}
			n++
		}
		if !aws.ToBool(page.IsTruncated) {
			return n, nil
		}
		if aws.ToString(page.NextKeyMarker) == "" || aws.ToString(page.NextKeyMarker) == aws.ToString(in.KeyMarker) &&
			aws.ToString(page.NextUploadIdMarker) == aws.ToString(in.UploadIdMarker) {
			return n, b.failure("ListMultipartUploads", errors.New("the list does not go on"))
		}
		in.KeyMarker, in.UploadIdMarker = page.NextKeyMarker, page.NextUploadIdMarker
	}
}

// abort removes a multipart upload. One that does not exist is not an error.
func (b *bucket) abort(ctx context.Context, key, id string, tries int, limit time.Duration) error {
	_, err := b.request(ctx, "AbortMultipartUpload", tries, limit, func(ctx context.Context) error {
		_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: b.name, Key: aws.String(key), UploadId: aws.String(id)})
		return err
	})
	if failure, ok := errors.AsType[*Error](err); ok && failure.code == "NoSuchUpload" {
		return nil
	}
	return err
}
