package get

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"golang.org/x/term"

	"fetchd/internal/cli"
)

// reflex is a row of the table of flags of other programs in the help.
type reflex struct {
	flags, get string
	has        bool // get has the flags
}

// curlTable says what the flags of curl mean in get. They are those of "curl --help", and those that its manual
// and the book "Everything curl" show for HTTP. A flag that get does not have is answered with its row.
var curlTable = []reflex{
	{"-A, --user-agent", "the same", true},
	{"-b, --cookie", "the same, without files: name=value", true},
	{"--basic", "the default with -u", false},
	{"-C, --continue-at", "\"fetchctl download\" continues files", false},
	{"-c, --cookie-jar", "--cookies keeps them within the fetch", false},
	{"--cacert", "the same", true},
	{"--compressed", "the default: bodies are decoded", false},
	{"--connect-timeout", "the same", true},
	{"--connect-to, --resolve", "use a line of the hosts file, or -x", false},
	{"--create-dirs", "make the folder first", false},
	{"-D, --dump-header", "-i or -I writes the headers, -v prints them", false},
	{"-d, --data", "the same; @FILE keeps its line ends", true},
	{"--data-binary", "the same", true},
	{"--data-raw", "the same", true},
	{"--data-urlencode", "the same", true},
	{"--digest, --anyauth, --ntlm, --negotiate", "-u is Basic; use -H", false},
	{"--disable", "no file has flags: leave it out", false},
	{"-E, --cert", "a fetchd at --server has client certificates", false},
	{"-e, --referer", "the same, without ;auto", true},
	{"--etag-compare", "-H 'If-None-Match: ETAG'", false},
	{"--etag-save", "-w '%header{etag}'", false},
	{"-F, --form", "the same, within 1 MiB", true},
	{"-f, --fail", "the default: a status 4xx or 5xx fails", false},
	{"--fail-with-body", "the first lines of an error page are printed", false},
	{"--form-string", "-F NAME=VALUE, unless it begins with @ or <", false},
	{"-G, --get", "the same", true},
	{"-g, --globoff", "the default", false},
	{"-H, --header", "the same; 'Name:' sends an empty one", true},
	{"-h, --help", "the same", true},
	{"--http1.0, -0, --http1.1", "HTTP/2 if the origin has it, else HTTP/1.1", false},
	{"--http2", "the default, over TLS", false},
	{"--http3", "HTTP/2 if the origin has it, else HTTP/1.1", false},
	{"-I, --head", "the same; -v prints the head of a 4xx or 5xx", true},
	{"-i, --include", "the same", true},
	{"--interface", "the system chooses the address", false},
	{"-J, --remote-header-name", "the default with -O", false},
	{"--json", "the same, before JSON or @FILE; else see above", true},
	{"-K, --config", "give the flags on the command line", false},
	{"-k, --insecure", "trust the origin's authority with --cacert FILE", false},
	{"--key", "it names an object of --store", true},
	{"-L, --location", "the default; --no-follow does not follow", false},
	{"--limit-rate", "\"fetchctl download\" has it", false},
	{"--location-trusted", "fetch the URL of the redirect with -u", false},
	{"-m, --max-time", "--timeout 5s; the retries are within it", false},
	{"--max-filesize", "--max-size", false},
	{"--max-redirs", "--max-redirects, 0 to 20", false},
	{"-N, --no-buffer", "the default", false},
	{"-n, --netrc", "-u USER asks for the password", false},
	{"--next", "run fetchctl once for each request", false},
	{"--no-progress-meter", "-sS prints only why a fetch failed", false},
	{"--noproxy", "NO_PROXY in the environment, or -x ''", false},
	{"-O, --remote-name", "the same; no file is replaced", true},
	{"-o, --output", "the same; a file is there when it is complete", true},
	{"--oauth2-bearer", "-H 'Authorization: Bearer TOKEN'", false},
	{"--output-dir", "-o FILE, or \"fetchctl download -d DIR\"", false},
	{"--proto", "the same, with =https", true},
	{"-q", "it is --quiet; no file has flags", true},
	{"-R, --remote-time", "touch -d, with -w '%header{last-modified}'", false},
	{"--remote-name-all", "\"fetchctl download\" fetches many URLs", false},
	{"--retry", "-r or --max-retries, 0 to 10; two are the default", false},
	{"--retry-all-errors", "\"fetchctl explain\" says what is retried", false},
	{"--retry-connrefused", "the default", false},
	{"--retry-delay", "the same", true},
	{"--retry-max-time", "--timeout limits the whole fetch", false},
	{"-r, --range", "--range; -r is the number of retries", true},
	{"-S, --show-error", "the same", true},
	{"-s, --silent", "the same, or -q", true},
	{"--socks5, --socks5-hostname", "-x socks5://HOST:PORT", false},
	{"--stderr", "2>FILE", false},
	{"-T, --upload-file", "the same, within 1 MiB", true},
	{"--tlsv1.2, --tlsv1.3", "the default: TLS 1.3, or else 1.2", false},
	{"--trace", "draws the fetch; curl's is -v or --warc", true},
	{"--trace-ascii", "-v, or --warc FILE", false},
	{"-U, --proxy-user", "-x http://USER:PASSWORD@HOST:PORT", false},
	{"-u, --user", "the same: Basic", true},
	{"--unix-socket", "only TCP is used: -x PROXY, or another URL", false},
	{"--url", "it is the argument; many URLs: \"fetchctl download\"", false},
	{"--url-query", "-G with --data-urlencode", false},
	{"-V, --version", "the same", true},
	{"-v, --verbose", "the same, and what was decided", true},
	{"-w, --write-out", "the same, with most variables for HTTP", true},
	{"-X, --request", "the same", true},
	{"-x, --proxy", "-x, with the port; or http_proxy and the like", true},
	{"-y, -Y, --speed-limit, --speed-time", "a body that stops arriving fails", false},
	{"-z, --time-cond", "-H 'If-Modified-Since: DATE'", false},
	{"-Z, --parallel", "\"fetchctl download\" fetches many URLs", false},
	{"-#, --progress-bar", "the default on a terminal", false},
	{"-4, --ipv4, -6, --ipv6", "addresses of both families are tried", false},
}

// wgetTable does the same for flags of wget.
var wgetTable = []reflex{
	{"-c, --continue", "\"fetchctl download\" continues files", false},
	{"-nc, --no-clobber", "-O replaces no file", false},
	{"--no-check-certificate", "trust the origin's authority with --cacert FILE", false},
	{"-nv, --no-verbose", "-sS prints only why a fetch failed", false},
	{"-O-", "standard output is the default: leave it out", false},
	{"-P, --directory-prefix", "\"fetchctl download -d DIR\"", false},
	{"--post-data", "-d DATA", false},
	{"--spider", "-I sends HEAD", false},
	{"-t, --tries", "-r or --max-retries, one less: 0 to 10", false},
	{"--waitretry", "--retry-delay", false},
}

// reflexHelp returns both tables as text.
func reflexHelp() string {
	var b strings.Builder
	b.WriteString("Equivalents:\n")
	for _, table := range [][]reflex{{{flags: "curl", get: "fetchctl get"}}, curlTable, {{flags: "wget", get: "fetchctl get"}}, wgetTable} {
		for _, row := range table {
			fmt.Fprintf(&b, "  %-26s %s\n", row.flags, row.get)
		}
	}
	return b.String()
}

// answers returns what to use instead of flags that get does not have.
func answers() map[string]string {
	all := make(map[string]string)
	for _, table := range [][]reflex{curlTable, wgetTable} {
		for _, row := range table {
			for flag := range strings.SplitSeq(row.flags, ", ") {
				switch earlier := all[flag]; {
				case row.has:
				case earlier != "":
					all[flag] = earlier + "; as a flag of wget: " + row.get
				default:
					all[flag] = row.get
				}
			}
		}
	}
	all["--"] = all["-O-"] // as -O is a flag of get, its last dash is the one that is not known
	return all
}

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
	case c.Trace && c.JSON.events:
		return cli.UsageError("--trace", "draws on standard error, and --json replaces what is printed there: leave out one of them")
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
	return c.addHeader("-b", "Cookie", strings.Join(pairs, "; "))
}

// addHeader adds a header for the named flag, unless -H has it too.
func (c *Command) addHeader(flag, name, value string) error {
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
