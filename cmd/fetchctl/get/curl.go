package get

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"fetchd/internal/cli"
)

// checkCurl rejects flags that contradict each other.
func (c *Command) checkCurl() error {
	switch {
	case c.URL == "":
		return cli.UsageError("URL", "is missing: give an absolute http or https URL")
	case c.Proto != "" && c.Proto != "=https":
		return cli.UsageError("--proto", fmt.Sprintf("is %.20q: give =https, or leave it out for http and https", c.Proto))
	case c.Proto != "" && !strings.HasPrefix(strings.ToLower(c.URL), "https:"):
		return cli.UsageError("--proto", "is =https, and the URL is not: give an https URL")
	case c.JSON.events && (c.Quiet || c.Silent):
		return cli.UsageError("--json", "prints every event, and --quiet prints none: leave out one of them")
	case c.Head && c.Request != "" && c.Request != http.MethodHead:
		return cli.UsageError("-I", "sends HEAD, but -X says "+c.Request+": leave out one of them")
	}
	return cmp.Or(c.checkRemoteName(), c.checkBody())
}

// checkRemoteName rejects -O next to flags that say where the body goes.
func (c *Command) checkRemoteName() error {
	switch {
	case c.RemoteName && c.Output != "":
		return cli.UsageError("-O", "names the file, and so does -o: leave out one of them")
	case c.RemoteName && c.Store != "":
		return cli.UsageError("-O", "writes a file, and with --store the body goes to the store: leave out one of them")
	}
	return nil
}

// curl converts flags of curl to those of get.
func (c *Command) curl(ctx context.Context, stdin io.Reader) error {
	if err := cmp.Or(c.checkCurl(), c.readWriteOut(ctx, stdin)); err != nil {
		return err
	}
	c.Quiet = c.Quiet || c.Silent
	if c.Head {
		c.Request, c.Include = http.MethodHead, true
	}
	return c.curlHeaders(ctx)
}

// curlHeaders converts the flags that set a header.
func (c *Command) curlHeaders(ctx context.Context) error {
	if c.Referer != nil {
		if strings.HasSuffix(*c.Referer, ";auto") {
			return cli.UsageError("-e", "is the same for all requests: leave out ;auto")
		}
		if err := c.Add("-e", "Referer", *c.Referer); err != nil {
			return err
		}
	}
	if c.UserAgent != nil {
		if err := c.Add("-A", "User-Agent", *c.UserAgent); err != nil {
			return err
		}
	}
	if c.Range != "" {
		if err := c.Add("--range", "Range", "bytes="+c.Range); err != nil {
			return err
		}
	}
	if err := c.addCookies(); err != nil {
		return err
	}
	return c.Complete(ctx)
}

// addCookies adds the cookies of -b. Those of the origin are then kept too, as by curl.
func (c *Command) addCookies() error {
	c.Cookies = c.Cookies || c.Cookie != nil
	var pairs []string
	for _, pair := range c.Cookie {
		if pair != "" && !strings.Contains(pair, "=") {
			return cli.UsageError("-b", fmt.Sprintf("%.60q is a file to curl, and files of cookies are not read: give NAME=VALUE", pair))
		}
		if pair != "" {
			pairs = append(pairs, pair)
		}
	}
	if pairs == nil {
		return nil
	}
	return c.Add("-b", "Cookie", strings.Join(pairs, "; "))
}
