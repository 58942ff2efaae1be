package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/signkeys"
)

// maxRequestBody is the limit of the API. The transport would reject a longer body with a
// worse message.
const maxRequestBody = 1 << 20

// maxRetries is the API's maximum of max_attempts, without the first attempt.
const maxRetries = 10

// request returns the request that the flags describe. Errors are usage errors, and that of
// ctx while standard input is read.
func (c *getCmd) request(ctx context.Context, stdin io.Reader) (*pb.FetchRequest, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	headers, err := headerLines("--header", c.Header)
	if err != nil {
		return nil, err
	}
	req := &pb.FetchRequest{
		Url: c.URL, Method: c.Request, Headers: headers,
		RedirectPolicy: redirectPolicy(c.MaxRedirects, c.NoFollow),
		RetryPolicy:    c.retryPolicy(),
		BodyPolicy:     &pb.BodyPolicy{MaxSizeBytes: (*int64)(c.MaxSize)},
		EventLevel:     pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
		RecordPolicy:   c.recordPolicy(),
		EgressRoute:    c.EgressRoute,
		AuthProvider:   c.provider(c.URL),
		TimeoutPolicy:  &pb.TimeoutPolicy{ConnectTimeout: c.ConnectTimeout.proto()},
	}
	req.RedirectPolicy.ForbidDowngrade = c.Proto != ""
	if c.Timeout != nil {
		req.TimeoutPolicy.TotalTimeout = durationpb.New(*c.Timeout)
	}
	if c.Store != "" {
		req.BodyPolicy.Delivery = &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: c.Store, Key: c.Key}}
	}
	if c.SHA256 != "" {
		req.Integrity = &pb.Integrity{Sha256: c.SHA256}
	}
	if c.Cookies {
		req.CookieMode = pb.CookieMode_COOKIE_MODE_WITHIN_FETCH
	}
	if c.Verbose || c.Trace {
		req.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	}
	return req, c.body(ctx, req, stdin)
}

// check rejects values for which the message of the service would not name the flag.
func (c *getCmd) check() error {
	if c.MaxRetries != nil && (*c.MaxRetries < 0 || *c.MaxRetries > maxRetries) {
		return cli.UsageError("--max-retries", fmt.Sprintf("is %d: give 0 to %d", *c.MaxRetries, maxRetries))
	}
	if c.EgressRoute != "" && c.Server == "" {
		return cli.UsageError("--egress-route", "names a route of a service: give --server too. The service inside fetchctl has --proxy")
	}
	if c.Sign.Given() && c.Server == "" && c.URL != "" && !signkeys.Signs(c.URL) {
		return cli.UsageError(signkeys.Name, "signs requests to https origins: give an https URL, or leave --sign-key and --sign-agent out")
	}
	return cmp.Or(c.checkRecords(), c.checkStore(), c.insideFlags.check(c.Server), cli.CheckScheme("URL", c.URL),
		cli.CheckUTF8(map[string]string{"URL": c.URL, "--request": c.Request,
			"--idempotency-key": c.IdempotencyKey, "--sha256": c.SHA256, "--store": c.Store, "--key": c.Key, "--record": c.Record, "--egress-route": c.EgressRoute}))
}

func redirectPolicy(maxRedirects *int32, noFollow bool) *pb.RedirectPolicy {
	follow := !noFollow
	return &pb.RedirectPolicy{MaxRedirects: maxRedirects, Follow: &follow}
}

var profiles = map[string]pb.RetryProfile{
	"standard": pb.RetryProfile_RETRY_PROFILE_STANDARD,
	"download": pb.RetryProfile_RETRY_PROFILE_DOWNLOAD,
}

func (c *getCmd) retryPolicy() *pb.RetryPolicy {
	p := &pb.RetryPolicy{
		Profile: profiles[c.Profile], MaxAttempts: attempts((*int32)(c.MaxRetries)),
		IdempotencyKey: c.IdempotencyKey, AllowNonIdempotent: c.IdempotencyKey != "",
	}
	if c.RetryDelay != nil {
		p.BaseDelay, p.MaxDelay, p.MaxJitter = c.RetryDelay.proto(), c.RetryDelay.proto(), durationpb.New(0)
	}
	return p
}

// attempts converts retries to attempts.
func attempts(retries *int32) *int32 {
	if retries == nil {
		return nil
	}
	n := *retries + 1
	return &n
}

// headerLines parses lines of the form "Name: value". Values that are not UTF-8 are kept
// unchanged.
func headerLines(flag string, lines []string) ([]*pb.Header, error) {
	headers := make([]*pb.Header, 0, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !utf8.ValidString(name) {
			return nil, cli.UsageError(flag, fmt.Sprintf("is %.60q: give Name: value", line))
		}
		h := &pb.Header{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)}
		if !utf8.ValidString(h.GetValue()) {
			h.RawValue, h.Value = []byte(h.GetValue()), ""
		}
		headers = append(headers, h)
	}
	return headers, nil
}
