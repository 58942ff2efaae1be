package get

import (
	"cmp"
	"context"
	"io"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/cmd/fetchctl/service"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/signkeys"
)

// request returns the request that the flags describe. Errors are usage errors, and that of
// ctx while standard input is read.
func (c *Command) request(ctx context.Context, stdin io.Reader) (*pb.FetchRequest, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	headers, err := service.Headers("--header", c.Header)
	if err != nil {
		return nil, err
	}
	retry, err := c.retryPolicy()
	if err != nil {
		return nil, err
	}
	req := &pb.FetchRequest{
		Url: c.URL, Method: c.Request, Headers: headers,
		RedirectPolicy: c.Redirect(),
		RetryPolicy:    retry,
		BodyPolicy:     &pb.BodyPolicy{MaxSizeBytes: (*int64)(c.MaxSize)},
		EventLevel:     pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
		RecordPolicy:   c.recordPolicy(),
		EgressRoute:    c.EgressRoute,
		AuthProvider:   c.Provider(c.URL),
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
func (c *Command) check() error {
	if c.EgressRoute != "" && c.Server == "" {
		return cli.UsageError("--egress-route", "names a route of a service: give --server too. The service inside fetchctl has --proxy")
	}
	if c.Sign.Given() && c.Server == "" && c.URL != "" && !signkeys.Signs(c.URL) {
		return cli.UsageError(signkeys.Name, "signs requests to https origins: give an https URL, or leave --sign-key and --sign-agent out")
	}
	return cmp.Or(c.checkRecords(), c.checkStore(), c.Origins.Check(c.Server), cli.CheckScheme("URL", c.URL),
		cli.CheckUTF8(map[string]string{"URL": c.URL, "--request": c.Request,
			"--sha256": c.SHA256, "--store": c.Store, "--key": c.Key, "--record": c.Record, "--egress-route": c.EgressRoute}))
}

// retryPolicy returns the policy of the retries, with the wait of --retry-delay.
func (c *Command) retryPolicy() (*pb.RetryPolicy, error) {
	p, err := c.Retry()
	if err == nil && c.RetryDelay != nil {
		p.BaseDelay, p.MaxDelay, p.MaxJitter = c.RetryDelay.proto(), c.RetryDelay.proto(), durationpb.New(0)
	}
	return p, err
}
