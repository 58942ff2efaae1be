package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"fetchd/internal/cli"
)

// curlRow is a row of the table of curl's flags in the help.
type curlRow struct{ curl, get string }

// curlTable says what the flags of curl that are used most do in get. They are those of "curl --help", and
// those that its manual and the book "Everything curl" show for HTTP.
var curlTable = []curlRow{
	{"-A, --user-agent", "the same"},
	{"-b, --cookie", "the same, without files: name=value"},
	{"--basic", "the default"},
	{"-C, --continue-at", "no: fetchctl download continues files"},
	{"-c, --cookie-jar", "no: --cookies keeps them within the fetch"},
	{"--cacert", "the same"},
	{"--compressed", "the default: bodies are decoded"},
	{"--connect-timeout", "the same"},
	{"--create-dirs", "no: make the folder first"},
	{"-D, --dump-header", "no: -i, -I or -v"},
	{"-d, --data", "the same; @FILE keeps its line ends"},
	{"--data-binary", "the same"},
	{"--data-raw", "the same"},
	{"--data-urlencode", "the same"},
	{"--digest", "no: Basic alone"},
	{"-E, --cert", "no: client certificates are set up at a fetchd"},
	{"-e, --referer", "the same, without ;auto"},
	{"-F, --form", "the same, within 1 MiB"},
	{"-f, --fail", "the default: a status 4xx or 5xx fails"},
	{"--fail-with-body", "no: the first lines of an error page are printed"},
	{"-G, --get", "the same"},
	{"-g, --globoff", "the default"},
	{"-H, --header", "the same; 'Name:' sends an empty one"},
	{"-h, --help", "the same"},
	{"--http1.1", "no: HTTP/2 is used if the origin offers it"},
	{"--http2", "the default, over TLS"},
	{"-I, --head", "the same; -v prints the head of a 4xx or 5xx"},
	{"-i, --include", "the same"},
	{"-J, --remote-header-name", "the default with -O"},
	{"--json", "the same, before JSON or @FILE; else see above"},
	{"-K, --config", "no"},
	{"-k, --insecure", "no: trust the origin's authority with --cacert"},
	{"--key", "no: it names an object of --store"},
	{"-L, --location", "the default; --no-follow does not follow"},
	{"--limit-rate", "no: fetchctl download --limit-rate"},
	{"-m, --max-time", "the same; the retries are within it"},
	{"--max-filesize", "the same"},
	{"--max-redirs", "the same, 0 to 20"},
	{"-N, --no-buffer", "the default"},
	{"-n, --netrc", "no: -u USER asks for the password"},
	{"--no-progress-meter", "no: -sS"},
	{"--noproxy", "no: NO_PROXY, or -x ''"},
	{"-O, --remote-name", "the same; no file is replaced"},
	{"-o, --output", "the same; a file is there when it is complete"},
	{"--oauth2-bearer", "no: -H 'Authorization: Bearer TOKEN'"},
	{"--output-dir", "no: -o, or fetchctl download -d"},
	{"--proto", "the same, with =https"},
	{"-q, --disable", "-q is --quiet; no file has flags"},
	{"-R, --remote-time", "no"},
	{"--resolve", "no: names are looked up as by other programs"},
	{"--retry", "the same, 0 to 10; two retries are the default"},
	{"--retry-all-errors", "no: fetchctl explain says what is retried"},
	{"--retry-connrefused", "the default"},
	{"--retry-delay", "the same"},
	{"--retry-max-time", "no: --timeout limits the whole fetch"},
	{"-r, --range", "--range; -r is the number of retries"},
	{"-S, --show-error", "the same"},
	{"-s, --silent", "the same, or -q"},
	{"-T, --upload-file", "the same, within 1 MiB"},
	{"--tlsv1.2", "the default"},
	{"--trace", "draws the fetch; curl's is -v or --warc"},
	{"-U, --proxy-user", "no: -x http://USER:PASSWORD@HOST:PORT"},
	{"-u, --user", "the same: Basic"},
	{"--url", "the same; many URLs: fetchctl download"},
	{"--url-query", "no: -G with --data-urlencode"},
	{"-V, --version", "the same"},
	{"-v, --verbose", "the same, and what was decided"},
	{"-w, --write-out", "the same, with most variables for HTTP"},
	{"-X, --request", "the same"},
	{"-x, --proxy", "-x, with the port; or http_proxy and the like"},
	{"-y, -Y, --speed-limit", "no: a body that stops arriving fails"},
	{"-z, --time-cond", "no: -H 'If-Modified-Since: DATE'"},
	{"-Z, --parallel", "no: fetchctl download fetches many URLs"},
	{"-#, --progress-bar", "the default on a terminal"},
	{"-4, --ipv4 and -6, --ipv6", "no: addresses of both families are tried"},
}

// curlHelp returns the table as text.
func curlHelp() string {
	var b strings.Builder
	b.WriteString("Equivalents:\n")
	fmt.Fprintf(&b, "  %-26s %s\n", "curl", "fetchctl get")
	for _, row := range curlTable {
		fmt.Fprintf(&b, "  %-26s %s\n", row.curl, row.get)
	}
	return b.String()
}

// checkCurl rejects flags that contradict each other.
func (c *getCmd) checkCurl() error {
	switch {
	case c.URL == "" && c.Target == "":
		return cli.UsageError("URL", "is missing: give an absolute http or https URL")
	case c.URL != "" && c.Target != "":
		return cli.UsageError("--url", "is the URL, and so is the argument: leave out one of them")
	case c.Proto != "" && c.Proto != "=https":
		return cli.UsageError("--proto", fmt.Sprintf("is %.20q: give =https, or leave it out for http and https", c.Proto))
	case c.Proto != "" && !strings.HasPrefix(strings.ToLower(cmp.Or(c.URL, c.Target)), "https:"):
		return cli.UsageError("--proto", "is =https, and the URL is not: give an https URL")
	case c.JSON.events && (c.Quiet || c.Silent):
		return cli.UsageError("--json", "prints every event, and --quiet prints none: leave out one of them")
	case c.Trace && c.JSON.events:
		return cli.UsageError("--trace", "draws on standard error, and --json replaces what is printed there: leave out one of them")
	case c.Head && c.Request != "" && c.Request != http.MethodHead:
		return cli.UsageError("-I", "sends HEAD, but -X says "+c.Request+": leave out one of them")
	case c.RemoteName && c.Output != "":
		return cli.UsageError("-O", "names the file, and so does -o: leave out one of them")
	case c.RemoteName && c.Store != "":
		return cli.UsageError("-O", "writes a file, and with --store the body goes to the store: leave out one of them")
	}
	return c.checkBody()
}

// curl converts flags of curl to those of get.
func (c *getCmd) curl(ctx context.Context, stdin io.Reader) error {
	if err := cmp.Or(c.checkCurl(), c.readWriteOut(ctx, stdin)); err != nil {
		return err
	}
	c.URL, c.Quiet = cmp.Or(c.URL, c.Target), c.Quiet || c.Silent
	c.MaxRetries, c.MaxRedirects = cmp.Or(c.MaxRetries, c.Retry), cmp.Or(c.MaxRedirects, c.MaxRedirs)
	c.MaxSize = cmp.Or(c.MaxSize, c.MaxFilesize)
	c.Timeout = cmp.Or(c.Timeout, (*time.Duration)(c.MaxTime))
	if c.Head {
		c.Request, c.Include = http.MethodHead, true
	}
	return c.curlHeaders(ctx)
}

// curlHeaders converts the flags that set a header.
func (c *getCmd) curlHeaders(ctx context.Context) error {
	if c.UserAgent != nil {
		if err := c.addHeader("-A", "User-Agent", *c.UserAgent); err != nil {
			return err
		}
	}
	if c.Referer != nil {
		if strings.HasSuffix(*c.Referer, ";auto") {
			return cli.UsageError("-e", "is the same for all requests: leave out ;auto")
		}
		if err := c.addHeader("-e", "Referer", *c.Referer); err != nil {
			return err
		}
	}
	if c.Range != "" {
		if err := c.addHeader("--range", "Range", "bytes="+c.Range); err != nil {
			return err
		}
	}
	if err := c.addCookies(); err != nil || c.User == "" {
		return err
	}
	user, password, ok := strings.Cut(c.User, ":")
	if !ok {
		var err error
		if password, err = readPassword(ctx, user); err != nil {
			return err
		}
	}
	return c.addHeader("-u", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

// addCookies adds the cookies of -b. Those of the origin are then kept too, as by curl.
func (c *getCmd) addCookies() error {
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
	return c.addHeader("-b", "Cookie", strings.Join(pairs, "; "))
}

// addHeader adds a header for the named flag, unless -H has it too.
func (c *getCmd) addHeader(flag, name, value string) error {
	for _, line := range c.Header {
		if given, _, _ := strings.Cut(line, ":"); strings.EqualFold(strings.TrimSpace(given), name) {
			return cli.UsageError(flag, fmt.Sprintf("sets %s, and so does -H: leave out one of them", name))
		}
	}
	c.Header = append(c.Header[:len(c.Header):len(c.Header)], name+": "+value)
	return nil
}

// readPassword asks for a password on the terminal of the process, without echo. Standard input may
// be something else, such as the request body.
func readPassword(ctx context.Context, user string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", cli.UsageError("-u", "has no password, and there is no terminal to ask for it: give USER:PASSWORD, or USER: if it is empty")
	}
	defer func() { _ = tty.Close() }() // it is only read
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		return "", cli.UsageError("-u", fmt.Sprintf("the password cannot be read from the terminal: %v", err))
	}
	_, _ = fmt.Fprintf(tty, "Password for %s: ", cli.Escape(user))
	type result struct {
		password []byte
		err      error
	}
	read := make(chan result, 1)
	go func() {
		password, err := term.ReadPassword(int(tty.Fd()))
		read <- result{password, err}
	}()
	select {
	case r := <-read:
		_, _ = fmt.Fprintln(tty) // the line end was not echoed
		if r.err != nil {
			return "", cli.UsageError("-u", fmt.Sprintf("the password cannot be read from the terminal: %v", r.err))
		}
		return string(r.password), nil
	case <-ctx.Done():
		_ = term.Restore(int(tty.Fd()), before) // a terminal without echo would be left behind
		_, _ = fmt.Fprintln(tty)
		return "", ctx.Err()
	}
}
