package get

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/cmd/fetchctl/service"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/signkeys"
	"fetchd/stores"
)

// request returns the request that the flags describe. Errors are usage errors, and that of
// ctx while standard input is read.
func (c *Command) request(ctx context.Context, stdin io.Reader) (*pb.FetchRequest, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	headers, err := c.Headers()
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
		BodyPolicy:     &pb.BodyPolicy{MaxSizeBytes: (*int64)(c.MaxSize), KeepEncoding: c.keepsCoding()},
		EventLevel:     pb.EventLevel_EVENT_LEVEL_ATTEMPTS,
		RecordPolicy:   c.recordPolicy(),
		EgressRoute:    c.EgressRoute,
		AuthProvider:   c.Provider(c.URL),
		TimeoutPolicy:  &pb.TimeoutPolicy{ConnectTimeout: c.ConnectTimeout.proto()},
		TextPolicy:     c.Markdown.policy,
	}
	req.RedirectPolicy.ForbidDowngrade = c.Proto != ""
	if c.Timeout != nil {
		req.TimeoutPolicy.TotalTimeout = durationpb.New(*c.Timeout)
		if *c.Timeout > usualHeaderTimeout { // a slow origin may use all of it, as with curl
			req.TimeoutPolicy.HeaderTimeout = req.TimeoutPolicy.TotalTimeout
		}
	}
	if c.FailWithBody {
		req.BodyPolicy.MaxErrorBodyBytes = new(int32(64 << 10))
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
	if c.Verbose {
		req.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	}
	return req, c.body(ctx, req, stdin)
}

// keepsCoding reports whether a file is saved as it was sent, because the fetch asks for no coding.
func (c *Command) keepsCoding() bool {
	return c.toFile() && c.Store == "" && (c.Sends("Range") || c.Profile == "download")
}

// check rejects values for which the message of the service would not name the flag.
func (c *Command) check() error {
	if c.EgressRoute != "" && c.Server == "" {
		return cli.UsageError("--egress-route", "names a route of a service: give --server too. The service inside fetchctl has --proxy")
	}
	if c.Sign.Given() && c.Server == "" && c.URL != "" && !signkeys.Signs(c.URL) {
		return cli.UsageError(signkeys.Name, "signs requests to https origins: give an https URL, or leave --sign-key and --sign-agent out")
	}
	if c.Compressed && (c.keepsCoding() || c.Sends("Accept-Encoding")) {
		return cli.UsageError("--compressed", "decodes the body, but it stays as it was sent with your own Accept-Encoding, and in a file with --profile download or a range: leave out one of them")
	}
	if _, err := urls.Parse(c.URL); err != nil {
		if known, ok := errors.AsType[*urls.Error](err); ok && known.Reason == "userinfo" {
			return cli.UsageError("URL", "has a user name or password: give them with -u USER:PASSWORD") // they are not repeated
		}
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

// checkStore rejects flags that do not go with --store, or that need it.
func (c *Command) checkStore() error {
	switch {
	case c.StoresFile != "" && c.Server != "":
		return cli.UsageError("--stores-file", "is for the service inside fetchctl: leave it out with --server or FETCHD_SERVER")
	case c.Store == "" && c.Key != "":
		return cli.UsageError("--key", "needs --store NAME")
	case c.Store == "" && c.Record == "" && c.StoresFile != "":
		return cli.UsageError("--stores-file", "needs --store NAME or --record NAME")
	case c.Store == "":
		return nil
	case c.StoresFile == "" && c.Server == "":
		return cli.UsageError("--store", "needs a service with stores: give --server, or --stores-file FILE for the service inside fetchctl")
	case c.Output != "":
		return cli.UsageError("-o", "is given with --store, and the body goes to the store: leave out one of them")
	case c.Include:
		return cli.UsageError("--include", "needs a body on standard output, and --store writes none: use --verbose")
	}
	return nil
}

// stores opens the stores of the service service. The caller closes them with service.CloseStores.
func (c *Command) stores() (*stores.Set, error) {
	if c.WARC != nil {
		return service.OpenWARC(*c.WARC, c.Secret()...)
	}
	if c.StoresFile == "" {
		return new(stores.Set), nil
	}
	bodies, err := stores.ReadFile(c.StoresFile, new(stores.Set))
	if err != nil {
		return nil, cli.UsageError("--stores-file", fmt.Sprint(err))
	}
	return bodies, nil
}

// checkRecords rejects flags that do not go with --warc and --record.
func (c *Command) checkRecords() error {
	if err := service.CheckWARC(c.WARC, c.Server, "with --server or FETCHD_SERVER, name a store of that service with --record"); err != nil {
		return err
	}
	switch {
	case c.WARC != nil && *c.WARC == c.Output:
		return cli.UsageError("--warc", "is the FILE of -o: give another")
	case c.WARC != nil && c.StoresFile != "":
		return cli.UsageError("--warc", "cannot be combined with --stores-file: put a store for records into that file, and name it with --record")
	case c.Record != "" && c.Server == "" && c.StoresFile == "":
		return cli.UsageError("--record", "needs a service with stores: give --server, or --stores-file FILE for the service inside fetchctl. --warc FILE needs neither")
	}
	return nil
}

// recordPolicy returns the policy of --warc and --record.
func (c *Command) recordPolicy() *pb.RecordPolicy {
	switch {
	case c.WARC != nil:
		return &pb.RecordPolicy{Store: service.WARCStore}
	case c.Record != "":
		return &pb.RecordPolicy{Store: c.Record}
	}
	return nil
}
