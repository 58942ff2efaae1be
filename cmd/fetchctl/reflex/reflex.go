// Package reflex answers those who know curl or wget. "fetchctl get" speaks curl, and "fetchctl download" speaks wget.
// For each of their flags that a command does not have, and for each form that it does not understand, there is a
// sentence that says what to use instead.
package reflex

import (
	"fmt"
	"strings"
)

// row is a row of the tables.
type row struct {
	flags    string
	get      string // what they mean in "fetchctl get", or what to use instead
	download string // the same for "fetchctl download"; of curl only for flags that have a meaning there
	has      bool   // the command that speaks the language has the flags
}

const site = "\"frontier crawl URL\" fetches a site"

// curl says what the flags of curl mean in get. They are those of "curl --help", and those that its manual
// and the book "Everything curl" show for HTTP. A flag that get does not have is answered with its row.
var curl = []row{
	{flags: "-A, --user-agent", get: "the same", has: true},
	{flags: "-b, --cookie", get: "the same, without files: name=value", has: true},
	{flags: "--basic", get: "the default with -u"},
	{flags: "-C, --continue-at", get: "\"fetchctl download\" continues files", download: "the default: a run continues what is unfinished"},
	{flags: "-c, --cookie-jar", get: "--cookies keeps them within the fetch"},
	{flags: "--cacert", get: "the same", has: true},
	{flags: "--compressed", get: "the default: bodies are decoded", download: "files are saved as they were sent"},
	{flags: "--connect-timeout", get: "the same", has: true},
	{flags: "--connect-to, --resolve", get: "use a line of the hosts file, or -x"},
	{flags: "--create-dirs", get: "make the folder first", download: "the default"},
	{flags: "-D, --dump-header", get: "-i or -I writes the headers, -v prints them"},
	{flags: "-d, --data", get: "the same; @FILE keeps its line ends", has: true},
	{flags: "--data-binary", get: "the same", has: true},
	{flags: "--data-raw", get: "the same", has: true},
	{flags: "--data-urlencode", get: "the same", has: true},
	{flags: "--digest, --anyauth, --ntlm, --negotiate", get: "-u is Basic; use -H"},
	{flags: "--disable", get: "no file has flags: leave it out"},
	{flags: "-E, --cert", get: "a fetchd at --server has client certificates"},
	{flags: "-e, --referer", get: "the same, without ;auto", has: true},
	{flags: "--etag-compare", get: "-H 'If-None-Match: ETAG'"},
	{flags: "--etag-save", get: "-w '%header{etag}'"},
	{flags: "-F, --form", get: "the same, within 1 MiB", has: true},
	{flags: "-f, --fail", get: "the default: a status 4xx or 5xx fails"},
	{flags: "--fail-with-body", get: "the first lines of an error page are printed"},
	{flags: "--form-string", get: "-F NAME=VALUE, unless it begins with @ or <"},
	{flags: "-G, --get", get: "the same", has: true},
	{flags: "-g, --globoff", get: "the default"},
	{flags: "-H, --header", get: "the same; 'Name:' sends an empty one", has: true},
	{flags: "-h, --help", get: "the same", has: true},
	{flags: "--http1.0, -0, --http1.1", get: "HTTP/2 if the origin has it, else HTTP/1.1"},
	{flags: "--http2", get: "the default, over TLS"},
	{flags: "--http3", get: "HTTP/2 if the origin has it, else HTTP/1.1"},
	{flags: "-I, --head", get: "the same; -v prints the head of a 4xx or 5xx", has: true},
	{flags: "-i, --include", get: "the same", has: true},
	{flags: "--interface", get: "the system chooses the address"},
	{flags: "-J, --remote-header-name", get: "the default with -O", download: "the default"},
	{flags: "--json", get: "the same, before JSON or @FILE; else see above", has: true},
	{flags: "-K, --config", get: "give the flags on the command line", download: "give the flags on the command line"},
	{flags: "-k, --insecure", get: "trust the origin's authority with --cacert FILE", download: "trust the origin's authority with --cacert FILE"},
	{flags: "--key", get: "it names an object of --store", has: true},
	{flags: "-L, --location", get: "the default; --no-follow does not follow", download: "the default"},
	{flags: "--limit-rate", get: "\"fetchctl download\" has it"},
	{flags: "--location-trusted", get: "fetch the URL of the redirect with -u"},
	{flags: "-m, --max-time", get: "--timeout 5s; the retries are within it"},
	{flags: "--max-filesize", get: "--max-size"},
	{flags: "--max-redirs", get: "--max-redirects, 0 to 20"},
	{flags: "-N, --no-buffer", get: "the default"},
	{flags: "-n, --netrc", get: "-u USER asks for the password"},
	{flags: "--next", get: "run fetchctl once for each request"},
	{flags: "--no-progress-meter", get: "-sS prints only why a fetch failed", download: "-q"},
	{flags: "--noproxy", get: "NO_PROXY in the environment, or -x ''"},
	{flags: "-O, --remote-name", get: "the same; no file is replaced", download: "the default", has: true},
	{flags: "-o, --output", get: "the same; a file is there when it is complete", download: "\"fetchctl get -o FILE URL\"", has: true},
	{flags: "--oauth2-bearer", get: "-H 'Authorization: Bearer TOKEN'"},
	{flags: "--output-dir", get: "-o FILE, or \"fetchctl download -d DIR\"", download: "-d DIR"},
	{flags: "--proto", get: "the same, with =https", has: true},
	{flags: "-q", get: "it is --quiet; no file has flags", has: true},
	{flags: "-R, --remote-time", get: "touch -d, with -w '%header{last-modified}'"},
	{flags: "--remote-name-all", get: "\"fetchctl download\" fetches many URLs", download: "the default"},
	{flags: "--retry", get: "-r or --max-retries, 0 to 10; two are the default", download: "-r or --max-retries, 0 to 10; three are the default"},
	{flags: "--retry-all-errors", get: "\"fetchctl explain\" says what is retried"},
	{flags: "--retry-connrefused", get: "the default", download: "the default"},
	{flags: "--retry-delay", get: "the same", has: true},
	{flags: "--retry-max-time", get: "--timeout limits the whole fetch"},
	{flags: "-r, --range", get: "--range; -r is the number of retries", has: true},
	{flags: "-S, --show-error", get: "the same", download: "the default, also with -q", has: true},
	{flags: "-s, --silent", get: "the same, or -q", download: "-q", has: true},
	{flags: "--socks5, --socks5-hostname", get: "-x socks5://HOST:PORT"},
	{flags: "--stderr", get: "2>FILE"},
	{flags: "-T, --upload-file", get: "the same, within 1 MiB", has: true},
	{flags: "--tlsv1.2, --tlsv1.3", get: "the default: TLS 1.3, or else 1.2"},
	{flags: "--trace", get: "draws the fetch; curl's is -v or --warc", has: true},
	{flags: "--trace-ascii", get: "-v, or --warc FILE"},
	{flags: "-U, --proxy-user", get: "-x http://USER:PASSWORD@HOST:PORT"},
	{flags: "-u, --user", get: "the same: Basic", has: true},
	{flags: "--unix-socket", get: "only TCP is used: -x PROXY, or another URL"},
	{flags: "--url", get: "it is the argument; many URLs: \"fetchctl download\"", download: "it is the argument"},
	{flags: "--url-query", get: "-G with --data-urlencode"},
	{flags: "-V, --version", get: "the same", has: true},
	{flags: "-v, --verbose", get: "the same, and what was decided", has: true},
	{flags: "-w, --write-out", get: "the same, with most variables for HTTP", has: true},
	{flags: "-X, --request", get: "the same", has: true},
	{flags: "-x, --proxy", get: "-x, with the port; or http_proxy and the like", has: true},
	{flags: "-y, -Y, --speed-limit, --speed-time", get: "a body that stops arriving fails"},
	{flags: "-z, --time-cond", get: "-H 'If-Modified-Since: DATE'"},
	{flags: "-Z, --parallel", get: "\"fetchctl download\" fetches many URLs", download: "-j N"},
	{flags: "-#, --progress-bar", get: "the default on a terminal", download: "the default on a terminal"},
	{flags: "-4, --ipv4, -6, --ipv6", get: "addresses of both families are tried", download: "addresses of both families are tried"},
}

// wget does the same for flags of wget and download.
var wget = []row{
	{flags: "-b, --background", get: "& in the shell", download: "& in the shell"},
	{flags: "-c, --continue", get: "\"fetchctl download\" continues files", download: "the default: a run continues what is unfinished"},
	{flags: "--content-disposition", get: "the default with -O", download: "the default"},
	{flags: "-e, --execute", get: "no file has settings: leave it out", download: "no file has settings: leave it out"},
	{flags: "--header", get: "the same", download: "\"fetchctl get -H 'NAME: VALUE' URL\""},
	{flags: "-i", get: "\"fetchctl download -i FILE\"", download: "the same", has: true},
	{flags: "--input-file", get: "\"fetchctl download -i FILE\"", download: "-i FILE"},
	{flags: "--limit-rate", get: "\"fetchctl download\" has it", download: "the same", has: true},
	{flags: "-N, --timestamping", get: "-H 'If-Modified-Since: DATE'", download: "files that are there stay, or give --force"},
	{flags: "-nc, --no-clobber", get: "-O replaces no file", download: "the default"},
	{flags: "--no-check-certificate", get: "trust the origin's authority with --cacert FILE", download: "trust the origin's authority with --cacert FILE"},
	{flags: "-nv, --no-verbose", get: "-sS prints only why a fetch failed", download: "-q prints only why files failed"},
	{flags: "-O, --output-document", get: "-o FILE; standard output is the default", download: "\"fetchctl get -o FILE URL\""},
	{flags: "-O-", get: "standard output is the default: leave it out", download: "\"fetchctl get URL\" writes to standard output"},
	{flags: "-o, -a, --output-file", get: "2>FILE", download: "2>FILE"},
	{flags: "-P, --directory-prefix", get: "\"fetchctl download -d DIR\"", download: "-d DIR"},
	{flags: "--post-data, --post-file", get: "-d DATA, -d @FILE", download: "\"fetchctl get -d DATA URL\""},
	{flags: "-q, --quiet", get: "the same", download: "the same, but failures are printed", has: true},
	{flags: "-m, --mirror, -l, -p, -np", get: site, download: site},
	{flags: "-nd, -nH, --recursive", get: site, download: site},
	{flags: "-r", get: site, download: "it is --max-retries", has: true},
	{flags: "-S, --server-response", get: "-v", download: "\"fetchctl get -v URL\""},
	{flags: "--spider", get: "-I sends HEAD", download: "\"fetchctl get -I URL\""},
	{flags: "-T, --timeout", get: "--timeout", download: "a body that stops arriving fails"},
	{flags: "-t, --tries", get: "-r or --max-retries, one less: 0 to 10", download: "-r or --max-retries, one less: 0 to 10"},
	{flags: "-U, --user-agent", get: "-A TEXT", download: "\"fetchctl get -A TEXT URL\""},
	{flags: "--user, --password", get: "-u USER:PASSWORD", download: "\"fetchctl get -u USER URL\""},
	{flags: "-w, --wait", get: "\"frontier crawl\" waits between pages", download: "\"frontier crawl\" waits between pages"},
	{flags: "--waitretry", get: "--retry-delay", download: "retries wait longer each time"},
}

// GetHelp returns the table of curl's flags.
func GetHelp() string {
	return help("curl", "fetchctl get", curl, func(r row) string { return r.get })
}

// DownloadHelp returns the table of wget's flags.
func DownloadHelp() string {
	return help("wget", "fetchctl download", wget, func(r row) string { return r.download })
}

func help(guest, command string, table []row, says func(row) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Equivalents:\n  %-26s %s\n", guest, command)
	for _, r := range table {
		fmt.Fprintf(&b, "  %-26s %s\n", r.flags, says(r))
	}
	return b.String()
}

// GetAnswers returns what to use instead of flags that get does not have.
func GetAnswers() map[string]string {
	all := make(map[string]string)
	add(all, curl, "", func(r row) string { return r.get })
	add(all, wget, "; as a flag of wget: ", func(r row) string { return r.get })
	return all
}

// DownloadAnswers returns what to use instead of flags that download does not have.
func DownloadAnswers() map[string]string {
	all := make(map[string]string)
	add(all, wget, "", func(r row) string { return r.download })
	add(all, curl, "; as a flag of curl: ", func(r row) string { return r.download })
	add(all, curl, "", func(row) string { return `"fetchctl get" has the flags of curl, for one URL` })
	return all
}

// add adds the answers of a table. A flag that has one already gets the new one behind a separator, unless that is
// empty.
func add(all map[string]string, table []row, separator string, says func(row) string) {
	for _, r := range table {
		for flag := range strings.SplitSeq(r.flags, ", ") {
			answer, earlier := says(r), all[flag]
			switch {
			case answer == "" || answer == earlier:
			case earlier == "":
				all[flag] = answer
			case separator != "":
				all[flag] = earlier + separator + answer
			}
		}
	}
}

// GetStray returns what to use instead of stray, the first argument that get does not take, or "".
func GetStray(args []string, stray string) string {
	for i, arg := range args {
		if i+1 == len(args) || isURL(args[i+1]) || !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "--") {
			continue
		}
		switch next := args[i+1]; {
		case next != "-" && strings.HasPrefix(next, "-"):
		case strings.HasSuffix(arg, "O") && next == "-":
			return "-O takes no name, as in curl: leave it out, and the body goes to standard output"
		case strings.HasSuffix(arg, "O"):
			return "-O takes no name, as in curl: give -o FILE"
		case strings.HasSuffix(arg, "i"):
			return `-i writes the headers, as in curl: "fetchctl download -i FILE" reads a list`
		}
	}
	if isURL(stray) {
		return `get takes one URL: "fetchctl download" fetches several`
	}
	return ""
}

func isURL(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}
