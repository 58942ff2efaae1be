package main

import (
	"maps"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
)

// The texts of --help that are longer than a line.

const description = `Keeps the URLs of a crawl and decides when each is fetched.

Everything is in one database: a SQLite file, or PostgreSQL if one machine is not enough. Several of these commands may run at once on one database.

If the reader of standard output goes away early, as head does, the exit code is 0.`

const overviewExamples = `  frontier crawl --max-urls 1000 https://example.org/
  frontier add https://example.org/
  frontier add -i urls.txt --sitemap sitemap.xml.gz
  frontier crawl --user-agent 'mybot/1.0 (+https://example.org/bot)'
  frontier status
  frontier why https://example.org/page
  frontier pause example.org
  frontier export --format csv -o urls.csv
  frontier status --db postgres://crawler@db.internal/frontier
`

// groups are the groups of flags, with a word on when one needs them.
var groups = []kong.Group{
	{Key: "Discovery:", Title: "Discovery:", Description: "To follow other links than all those to the hosts of the URLs."},
	{Key: "Budgets:", Title: "Budgets:", Description: "To end a crawl before nothing is left."},
	{Key: "Service:", Title: "Service:", Description: "To fetch through another fetchd, to reach your own network, or to sign requests."},
	{Key: "Pace:", Title: "Pace:", Description: "To be slower, or faster on hosts that bear it."},
	{Key: "Fetches:", Title: "Fetches:", Description: "To say whose crawler it is, and to fetch other things than pages, or again."},
	{Key: "Failures:", Title: "Failures:", Description: "To try more or less often than the defaults."},
	{Key: "Results:", Title: "Results:", Description: "To keep more than a row of the database for each fetch."},
	{Key: "Work:", Title: "Work:", Description: "To run as a service."},
	{Key: "Callers:", Title: "Callers:", Description: "To let callers of other machines in."},
}

// manual returns the manual of a command that works on a database and prints something. exits are
// its exit codes that differ from those of every such command.
func manual(examples string, exits map[int]string) cli.Manual {
	all := map[int]string{cli.ExitDatabase: "", cli.ExitOutput: "", cli.ExitInterrupted: ""}
	maps.Copy(all, exits)
	return cli.Manual{Exits: all, Examples: examples}
}

// Help implements kong.HelpProvider.
func (c *addCmd) Help() string {
	return `Stores each URL once, in its normal form. A URL that is already there does not change, except that a page that is to be fetched again at some time is due if the lastmod of a sitemap is later than its last fetch. The database is created if it does not exist.

A list has one URL per line. Empty lines and lines that start with # are skipped; CRLF and a byte order mark are accepted; a line of more than 64 KiB is an error. A sitemap is XML or text as sitemaps.org describes it, of at most 50 MiB. A worker reads the sitemaps in a sitemap index, and a sitemap that --sitemap names by its URL, in turn with the pages of their hosts, and adds what they list. Files may be compressed with gzip.

Scope. --scope, --include, --exclude and the limits also apply to what a worker finds in these sitemaps. They are stored with a sitemap when it is added for the first time. "--scope prefix" is the rule of sitemaps.org for the place of a sitemap: it lists URLs below its own directory. To follow links, use "frontier crawl", whose own scope then applies as well.

A line that is not a URL is skipped and reported on standard error as FILE:LINE with the reason. After the first 100, only their number is reported. The length of the input does not affect memory. If you interrupt the command, it names the last line that was added; what was added stays.`
}

// Manual lists the exit codes and examples of the command.
func (c *addCmd) Manual() cli.Manual {
	return manual(`
  frontier add https://example.org/ https://example.org/about
  frontier add -i urls.txt -i more.txt.gz
  frontier add --sitemap sitemap.xml
  frontier add --sitemap https://example.org/sitemap.xml --scope host --exclude '/archive/'
  curl -s https://example.org/sitemap.xml.gz | frontier add --sitemap -
  grep -o 'https://[^"]*' page.html | frontier add -i - --db crawl.db
`, map[int]string{cli.ExitUsage: "usage; nothing was added", cli.ExitBadInput: ""})
}

// Help implements kong.HelpProvider.
func (c *crawlCmd) Help() string {
	return `With URLs, it starts a crawl: it fetches them, adds what they link to, and creates the database if it does not exist. Without a URL, it continues what the database has. Links are followed if a crawl was started there. URLs that were only added, with "frontier add" or by the API, are fetched, and their links are not followed. Each URL is fetched when its host may be fetched from. Any number of these commands may share one database, on one machine or on several.

End. The command ends when nothing is left to fetch or a budget is used up. As a service, give it --endless: it then waits for more URLs, and if another command starts a crawl, it follows links from then on. With --recrawl it does not end either.

Discovery. Links are those of a, area, iframe, frame, embed, object, meta refresh, and link with rel=canonical, next, prev or alternate. Each is stored once, in its normal form, with the page that has it and its depth. rel=nofollow, meta robots and X-Robots-Tag are obeyed. The sitemaps that robots.txt names are read in turn with the pages of their host; "frontier add --sitemap" adds others. A redirect out of the scope is not followed; its URL is dead as out_of_scope.

Plan. URLs, scope and budgets are stored in the database, and apply to every later command. If you give one of these flags again, it changes the crawl, and the command says so. Give the other flags each time, such as --user-agent, --bodies and --warc.

Budgets. --max-urls and --max-urls-per-host leave out links. A host that uses up --max-bytes-per-host is given up: its URLs are dead as over_budget, and "frontier retry --class over_budget" undoes it. --max-bytes and --max-time end the run, and its URLs stay pending. Fetches in flight are completed, so a little more may be used. The lines before the last one say what each budget and limit left out.

Service. A fetchd inside this process makes the fetches. It reaches only public addresses on ports 80 and 443, whatever address a name or a redirect leads to. To crawl your own site on another address or port, allow just that: --egress-allow-cidr 10.1.2.0/24 --egress-allow-port 8080. With --server, another fetchd makes the fetches, and its own settings apply. With several --server flags, each fetch goes to the service with the fewest fetches in flight. If a service is lost, its fetches are made again.

Politeness. A host gets one request at a time, and the next one --delay after the last fetch has ended. "frontier set" changes this for one host. A longer Crawl-delay in robots.txt applies, up to a minute. robots.txt is obeyed, and fetched again after a day. While it is unreachable, the URLs of its origin wait for up to an hour, and those of the other scheme of the host do not. A redirect to another host waits until that host may be fetched from. A host that answers 429 or 503 is left alone for as long as it asks, or for a minute that doubles each time.

Identity. --user-agent and --from say whose crawler it is, and a signature proves it (Web Bot Auth). The fetchd inside signs with --sign-key and --sign-agent, the one at --server with the auth provider of --identity. Origins that these do not cover, such as those of http, get requests without a signature. If a request cannot be signed, for example because the key has expired, no URL is lost: the worker waits and says why. docs/crawl.md has a recipe.

Redirects. The environment variable CRAWLER_MAX_REDIRECTS (0 to 20; default: 5) limits the redirects of one fetch. With CRAWLER_FOLLOW_REDIRECTS=false none is followed.

Results. Each outcome is a row in the database; "frontier export" prints them. --outcomes also appends each outcome to a file, as one line of JSON. --bodies stores each body as sha256/XX/DIGEST, where XX are the first two digits of the digest and DIGEST is the field body_sha256 of the outcome. Equal bodies are stored once. The empty body is stored first, to check that the place can be written. A body goes to its place as it arrives, and has its name when it is complete. A bucket needs --stores-file, which has its URL and its credentials; the environment is not read. Bodies for a bucket wait in temporary files ($TMPDIR), up to 8 GiB in all, until they are complete.

Records. --warc records every request and response in WARC files: pages, redirects, retries and robots.txt. The fields of an outcome that start with warc_ say where the record of its response is. A response that equals the last one of its URL is recorded without its body, and refers to the earlier record, also in later runs; so keep all WARC files of a database. A file has the suffix .open until it is whole. The end of a run makes all its files whole. After a crash, the next run does that. Recorded fetches use HTTP/1.1. With --server, the fetchd there writes the records into its own store, and --warc is the name of that store.

The last line on standard error counts the URLs that were completed, the URLs that failed for good, and the retries (attempts after the first of a fetch). "disallowed by robots.txt" counts URLs that were not fetched for that reason. "postponed" counts temporary failures after which a URL is tried again later. The lines before it name each error class and what to do about it. A line of progress counts the robots.txt files that were read while hosts are new, because no URL of a host is fetched before. Unless standard error is a terminal, each line names the most frequent error class since the last line.

Recrawl. --recrawl 7d fetches each URL again a week after it was fetched, and the run goes on until you stop it. A page that has not changed (a 304, or a body with the same digest) waits twice as long next time, and one that has changed half as long, from a quarter to eight times of what you set. Digests are compared only with --bodies or --warc. A URL that failed for good is not fetched again.

Signals. After SIGTERM or SIGINT no new fetch starts. Fetches in flight may take up to --drain-time; after that, their URLs are given back for the next run. After a second signal the process ends at once, and its URLs are free when their leases end: after five times --total-timeout, or 5 minutes more than it if that is less.`
}

// Manual lists the exit codes and examples of the command.
func (c *crawlCmd) Manual() cli.Manual {
	m := manual(`
  frontier crawl --user-agent 'mybot/1.0 (+https://example.org/bot)' https://example.org/
  frontier crawl --scope domain --max-urls 10000 --bodies pages https://www.example.org/
  frontier crawl --scope prefix --exclude '\?' --max-depth 5 https://example.org/docs/
  frontier crawl --max-urls 20000
  frontier crawl --sign-key keys --sign-agent https://bot.example.com --user-agent 'mybot/1.0 (+https://bot.example.com/)'
  frontier crawl --delay 5s --outcomes - --quiet | jq -r 'select(.status == "dead") | .url'
  frontier crawl --server https://fetch-1 --server https://fetch-2 --token-file token
  frontier crawl --on forbidden=abort-host --on dns_not_found=retry --max-url-retries 5
  frontier crawl --db postgres://crawler@db.internal/frontier --endless --quiet --metrics-addr :9100
  frontier crawl --accept any --stores-file stores.yaml --bodies archive --warc records
  frontier crawl --recrawl 7d --recrawl news.example.org=6h --bodies pages
`, map[int]string{
		cli.ExitOK:          "nothing is left to fetch, a budget is used up, or the reader of the outcomes has gone away",
		cli.ExitNothing:     "nothing is left to fetch, URLs failed for good or were disallowed, and none was completed",
		cli.ExitAborted:     "an outcome aborted the crawl, which is now paused",
		cli.ExitService:     "no fetch service answers",
		cli.ExitOutput:      "the outcomes, the bodies or the records cannot be written",
		cli.ExitInterrupted: "interrupted, after fetches in flight could end",
	})
	m.Answers = map[string]string{"--sitemap": `"frontier add --sitemap URL" adds one to the crawl`}
	return m
}

// Help implements kong.HelpProvider.
func (c *serveCmd) Help() string {
	return `Serves frontier.v1.FrontierService: crawlers in any language put URLs, claim them, fetch them themselves, and record how each ended. They share the delays of hosts with each other and with every "frontier crawl" on the database. Several services may run on one database, which is created if it does not exist. docs/frontier-api.md describes the API. To describe it, you can also ask a running service: grpcurl -plaintext HOST:PORT describe

A port that is not on loopback needs a certificate, or --allow-plaintext. To authenticate callers, use --token-file, --tls-client-ca-file, or both. On SIGHUP the files of these flags are read again, and the certificates also every minute. A call that has started continues.

After SIGTERM or SIGINT new calls are rejected, claims stop waiting, and calls in flight have --drain-time to end. What callers have claimed stays claimed: they can record it with the next service.`
}

// Manual lists the exit codes and examples of the command.
func (c *serveCmd) Manual() cli.Manual {
	return cli.Manual{Examples: `
  frontier serve --db crawl.db
  frontier serve --db postgres://crawler@db.internal/frontier --grpc-addr :8090 --http-addr :8091 --tls-cert-file cert.pem --tls-key-file key.pem --token-file callers.yaml
  curl -s http://127.0.0.1:8091/v1/stats
`, Exits: map[int]string{cli.ExitOK: "stopped by SIGTERM or SIGINT; healthcheck: serving", cli.ExitFailed: "a port failed, or calls outlasted --drain-time; healthcheck: not serving, or with an expired certificate", cli.ExitUsage: "", cli.ExitDatabase: ""}}
}

// Help implements kong.HelpProvider.
func (c *statusCmd) Help() string {
	return `The last column has the names that other documents use: Pending, InProgress (fetching), Completed (fetched) and Failed (dead).

What pending and failed URLs wait for: each is counted once, for the first cause that applies, in the order crawl, host, robots.txt, blocked, retry, in flight, delay, turn. "frontier why URL" says it of one URL. Below are up to ten origins whose robots.txt is unreachable, those first that have been so for longest. With --json, the field waiting has the names that "frontier why --json" uses.

A host may be counted in several lines: a blocked host is also waiting.

A worker is one "frontier crawl". It is listed from its start to its stop. One that was not seen for 30 s has vanished: its URLs are fetched by another worker when their leases end.

Each reading counts the rows of the whole table. --classes reads them one by one, which takes some seconds for a million URLs.`
}

// Manual lists the exit codes and examples of the command.
func (c *statusCmd) Manual() cli.Manual {
	return manual(`
  frontier status
  frontier status --watch
  frontier status --classes
  frontier status --json | jq .urls.pending
  frontier status --watch >> crawl.log
`, map[int]string{cli.ExitInterrupted: "interrupted, as --watch always ends"})
}

// Help implements kong.HelpProvider.
func (c *whyCmd) Help() string {
	return `The first line is the reason; the facts follow. If several things delay the URL, the reason is the one that you can change, or else the one that lasts longest. All times come from the database's clock.

The rules of robots.txt are those in the database, as the last worker read them. They apply to a "frontier crawl" without --ignore-robots. Use the same --user-agent as there.

With --json, the field reason is one of fetched, dead, fetching, lease_expired, crawl_paused, host_paused, robots_disallowed, robots_unreachable, host_blocked, backing_off, host_in_flight, host_delay, group_turn and its_turn.`
}

// Manual lists the exit codes and examples of the command.
func (c *whyCmd) Manual() cli.Manual {
	return manual(`
  frontier why https://example.org/page
  frontier why --json https://example.org/page | jq -r .reason
`, map[int]string{cli.ExitNothing: "the frontier does not have the URL"})
}

// Help implements kong.HelpProvider.
func (c *retryCmd) Help() string {
	return `Makes URLs pending again whose last fetch failed, including dead ones, and resets their failure counts. If robots.txt ended a URL, that file is fetched again. "frontier status --classes" shows how many URLs failed with each class.

With --fetched-before, it makes successfully fetched URLs pending instead, so that the next run fetches them again. If the origin sent an ETag or a Last-Modified, that fetch is conditional.

URLs change 2,000 at a time, so running crawls are hardly delayed. If you interrupt the command, it says how many URLs are pending again; run it again for the others.`
}

// Manual lists the exit codes and examples of the command.
func (c *retryCmd) Manual() cli.Manual {
	return manual(`
  frontier retry
  frontier retry --class http_server_error
  frontier retry --class robots_unreachable --db crawl.db
  frontier retry --host example.org
  frontier retry --fetched-before 168h
`, map[int]string{cli.ExitOK: "done, even if no URL was affected"})
}

// Help implements kong.HelpProvider.
func (c *migrateCmd) Help() string {
	return `Other commands that write to the database do this too when they start. The commands status, why, export and robots only read: they refuse a database with an older schema.`
}

// Manual lists the exit codes and examples of the command.
func (c *migrateCmd) Manual() cli.Manual {
	return manual(`
  frontier migrate --db postgres://crawler@db.internal/frontier
`, nil)
}

// Help implements kong.HelpProvider.
func (c *pruneCmd) Help() string {
	return `Deletes rows for good; --dry-run counts them first. At least one of --outcomes-before, --urls and --hosts is needed. A URL that is being fetched is never deleted.

The frontier forgets a URL that is deleted. If it is added again, by a list, a link or a redirect, it is fetched again, and without the validators of its last fetch. Its outcomes stay until --outcomes-before deletes them. Bodies and WARC files stay.

A host without URLs is needed if it has settings, is paused, or was fetched from or blocked within the last hour, or within 25 hours if its robots.txt has a Crawl-delay. With the row go the sum that --max-bytes-per-host compares.

Rows are deleted 2,000 at a time, so running crawls are hardly delayed. If you interrupt the command, it says what it has deleted; run it again to continue. --hosts --dry-run does not count hosts that lose their last URL by --urls.`
}

// Manual lists the exit codes and examples of the command.
func (c *pruneCmd) Manual() cli.Manual {
	return manual(`
  frontier prune --outcomes-before 2160h --dry-run
  frontier prune --outcomes-before 2160h
  frontier prune --urls dead,fetched --before 8760h --hosts
  frontier prune --urls pending --host example.org
`, map[int]string{cli.ExitOK: "done, even if no row was deleted"})
}

// Help implements kong.HelpProvider.
func (c *exportCmd) Help() string {
	return `Rows are in the order of their ids. They are read a page at a time, so concurrent changes may or may not be included. Their number does not affect memory.

Both formats have the same fields. Times are RFC 3339 in UTC; a missing time is null in JSON and an empty cell in CSV. Durations are in milliseconds.

In CSV, control characters, line ends and characters that change the direction of writing are escaped as in a Go string, such as \x1b, \n and \u202e, because a terminal would obey them. A cell that starts with = + - or @ gets a leading ', because a spreadsheet would read it as a formula. JSON lines contain every value unchanged: such characters appear as \u001b or \u202e, which JSON decodes to the same value.

FILE gets its name when it is complete. Until then an existing file stays.`
}

// Manual lists the exit codes and examples of the command.
func (c *exportCmd) Manual() cli.Manual {
	return manual(`
  frontier export | jq -r 'select(.status == "dead") | .url'
  frontier export --what fetches --format csv -o fetches.csv
  frontier export | head -n 3
`, map[int]string{cli.ExitOK: "all was written, or the reader of standard output has gone away"})
}

// Help implements kong.HelpProvider.
func (c *pauseCmd) Help() string {
	return `Fetches in flight continue. A pause lasts until "frontier resume" with the same host, or without one. It also applies to runs that start later.`
}

// Manual lists the exit codes and examples of the command.
func (c *pauseCmd) Manual() cli.Manual {
	return manual(`
  frontier pause
  frontier pause example.org
  frontier pause https://example.org:8443/page
`, nil)
}

// Help implements kong.HelpProvider.
func (c *resumeCmd) Help() string {
	return `Ends the pause of the crawl or of one host. To end both, call it twice.`
}

// Manual lists the exit codes and examples of the command.
func (c *resumeCmd) Manual() cli.Manual {
	return manual(`
  frontier resume
  frontier resume example.org
`, map[int]string{cli.ExitOK: "resumed, or it was not paused"})
}

// Help implements kong.HelpProvider.
func (c *setCmd) Help() string {
	return `The setting applies from the host's next fetch until you change it. The host may be unknown; then the output says so.`
}

// Manual lists the exit codes and examples of the command.
func (c *setCmd) Manual() cli.Manual {
	return manual(`
  frontier set example.org --delay 5s
  frontier set example.org --delay default
  frontier set cdn.example.org --delay 0s --max-in-flight 4
`, nil)
}

// Help implements kong.HelpProvider.
func (c *robotsCmd) Help() string {
	return `Shows the robots.txt files of a host, one for https and one for http, as a worker fetched them last: when, with which status, which rules apply to this crawler, the Crawl-delay and the sitemaps. It fetches nothing.

With --refresh, the next worker that needs a file fetches it again. Workers that run notice that within ten seconds. A host that is closed, because the file is unreachable, stays closed for its time.

A file that is older than a day is fetched again before the next URL. If a file is unreachable, no URL is fetched; after 30 days the last file applies.`
}

// Manual lists the exit codes and examples of the command.
func (c *robotsCmd) Manual() cli.Manual {
	return manual(`
  frontier robots example.org
  frontier robots example.org --url https://example.org/search?q=1
  frontier robots example.org --refresh
  frontier robots --json https://example.org/ | jq '.files[].sitemaps'
`, map[int]string{cli.ExitNothing: "no robots.txt of the host was read yet"})
}
