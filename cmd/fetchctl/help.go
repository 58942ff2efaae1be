package main

import "fetchd/internal/cli"

// The texts of --help that are longer than a line.

const description = `Fetches URLs through fetchd and shows every attempt as it happens.

Without --server the service runs inside this program, with your own rights: it reaches any address and port that you can, as curl does.`

const overviewExamples = `  fetchctl get https://example.org/
  fetchctl get -o page.html --profile download https://example.org/big.html
  fetchctl download -d images -i urls.txt
  fetchctl explain --status 503 -H 'Retry-After: 5'
  fetchctl demo
`

// Help is the text after the first line of "fetchctl get --help". It implements
// kong.HelpProvider.
func (c *getCmd) Help() string {
	return `The body goes to standard output byte for byte, or to FILE with -o; FILE appears only when the whole body is there and right. Where standard output is a terminal, control characters in the body are escaped; "-o -" writes them as they are.

An interrupted body is continued if the origin sent a strong validator and accepts ranges. Otherwise -o FILE fetches it again from the start, as long as attempts are left. On standard output the fetch fails, unless the whole body is within the hold-back (512 KiB): what was written there cannot be taken back.

Attempts go to standard error as they end, one line each. With --json every event is one line of JSON (fetchd.v1.FetchResponse with the field names of the proto file): on standard error where the body goes to standard output, on standard output with -o FILE. The data of body chunks is left out of it.

A failed fetch writes nothing to standard output and no FILE, unless it failed inside or after a body of more than the hold-back: cut off, too long, not of the digest that was said. Then standard output has its beginning; with -o it is not kept. The first lines of an error page go to standard error.

With --har the fetch is written to a file that the developer tools of browsers open (import it in their network panel): an entry for each hop of each attempt, a page for each attempt with what was decided after it. It is there for failed and interrupted fetches too. Bodies are left out, and so is what may be a secret: of the request all headers but those that name no one, of responses cookies and credentials. URLs are written whole, with their queries.

With --trace the same is drawn to scale: a bar for each hop, with a character for each phase, and for each wait with its length, rule and source. It is ASCII where the locale is not UTF-8. "blocked" is the time that no phase accounts for.`
}

// Manual lists the exit codes and examples of the command.
func (c *getCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "success, 304, or a redirect that is not followed",
		cli.ExitTransient:   "",
		cli.ExitPermanent:   "",
		cli.ExitRateLimited: "",
		cli.ExitNeedsAuth:   "",
		cli.ExitService:     "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  fetchctl get https://example.org/
  fetchctl get -v -o page.html https://example.org/
  fetchctl get -r 10 --profile download -o image.iso https://example.org/image.iso
  fetchctl get -d @order.json -H 'Content-Type: application/json' \
      --idempotency-key order-17 --allow-non-idempotent https://api.example.org/orders
  fetchctl get -H 'If-None-Match: "abc"' https://example.org/feed.xml
  fetchctl get --json -o /dev/null https://example.org/ | jq .outcome
  fetchctl get -q --trace -o /dev/null https://example.org/
  fetchctl get --har fetch.har -o page.html https://example.org/
  fetchctl get --server fetchd.internal:8080 https://example.org/
  fetchctl get --server fetchd.internal:8080 --tls --token-file ~/.fetchd-token https://example.org/
`}
}

// Help is the text after the first line of "fetchctl download --help". It
// implements kong.HelpProvider.
func (c *downloadCmd) Help() string {
	return `A file has the name in the second column of the list; or else the one that the origin gives with Content-Disposition; or else the last segment of the URL, without its query. Names are made safe: no separators, leading dots or dashes, controls or devices of Windows, at most 240 bytes. Where two URLs want one name, the second gets a mark of its URL in it. A file that is there already is left alone, and no request is made for it where its name is known before.

While it is under way a file is called NAME.part, and NAME.part.json says how far it has come. The next run with the same URL continues there, whatever ended this one, if the origin gave a strong ETag or a Last-Modified date and still has the same file; else it starts over. A file gets its name only when it is whole and of the digest in --sha256sums, if there is such a list.

Attempts follow the profile "download" of the service: longer waits with jitter, 408 tried again. Cut bodies are continued where the origin allows it, and begun again where not.

The last line counts files, and retries: the attempts after the first of a file, and how many files needed them.`
}

// Manual lists the exit codes and examples of the command.
func (c *downloadCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "all files are there",
		cli.ExitTransient:   "",
		cli.ExitPermanent:   "",
		cli.ExitRateLimited: "",
		cli.ExitNeedsAuth:   "",
		cli.ExitService:     "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  fetchctl download https://example.org/image.iso
  fetchctl download -d images -j 8 --limit-rate 2m -i urls.txt
  fetchctl download -d release --sha256sums SHA256SUMS -i urls.txt
  grep -o 'https://[^"]*pdf' page.html | fetchctl download -d papers -
  fetchctl download --json -q -i urls.txt | jq -r 'select(.result == "failed") | .url'
`}
}

// Help is the text after the first line of "fetchctl explain --help". It
// implements kong.HelpProvider.
func (c *explainCmd) Help() string {
	return `Describe what was observed: a response (--status, -H, --location), something that went wrong (--fault), or both; and what preceded it. Or give a fetchd.v1.ExplainRequest as JSON: @FILE.json, or - for standard input.`
}

// Manual lists the exit codes and examples of the command.
func (c *explainCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitService:     "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  fetchctl explain --status 503
  fetchctl explain --status 429 -H 'Retry-After: 120'
  fetchctl explain --fault body_interrupted --body-committed
  fetchctl explain --method POST --status 503
  fetchctl explain --status 302 --location https://other.example/ --redirects 5
  echo '{"response": {"status_code": 503}, "attempt": 3}' | fetchctl explain --json -
`}
}

// Help is the text after the first line of "fetchctl demo --help". It implements
// kong.HelpProvider.
func (c *demoCmd) Help() string {
	return `Starts an origin that commits faults on request and the service, both on loopback, and runs one scenario after another. Each is checked twice: by what the service told and by what the origin saw. No internet is needed, and the service's address guard is in force.

With --break RULE only the scenarios about that rule run, and the origin's script is changed so that the rule has no occasion to hold. The demo must then fail: it shows that its checks can.`
}

// Manual lists the exit codes and examples of the command.
func (c *demoCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "every check held",
		cli.ExitFailed:      "a check did not hold",
		cli.ExitService:     "the origin or the service could not start",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  fetchctl demo
  fetchctl demo --list
  fetchctl demo --break W2
`}
}

// Help is the text after the first line of "fetchctl conformance --help". It
// implements kong.HelpProvider.
func (c *conformanceCmd) Help() string {
	return `Runs every vector of conformance/ through the Explain call of a server, and every wire scenario through Fetch or FetchUnary against an origin that commits faults. The origin runs in this program, on loopback. What must hold is data; see conformance/README.md.

A target must be able to reach the origin: one on this machine needs --egress-allow-cidr 127.0.0.0/8 and an --egress-allow-port for each port of the origin, which --origin-addr fixes; one elsewhere needs --origin-addr and, where addresses are translated, --origin-url. Without them the report tells which flags are missing. Scenarios over TLS need --write-ca and a target that then starts with --egress-ca-file, for which --wait waits.

With --client a program is judged instead, by what the origin saw of it: requests, the time between them, and whether exit status and body are right. The file $ORIGIN_CA has the authority of the origin. Rules that cannot be seen that way are n/a.`
}

// Manual lists the exit codes and examples of the command.
func (c *conformanceCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "every check held",
		cli.ExitFailed:      "a check did not hold",
		cli.ExitUsage:       "usage, or the target does not reach the origin",
		cli.ExitService:     "the service or the origin failed",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  fetchctl conformance
  fetchctl conformance --list
  fetchctl conformance --only W2 --only "redirect loop"
  fetchctl conformance --target fetchd.internal:8080 --origin-addr 10.0.0.5:9080
  fetchctl conformance --client 'curl -sfL --retry 3 --cacert ca.pem {url}' --markdown curl.md
  fetchctl conformance --client conformance/clients/urllib3 --json
`}
}
