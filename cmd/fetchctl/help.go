package main

import "fetchd/internal/cli"

// The long texts of --help.

const description = `Fetches URLs through fetchd and shows every attempt as it happens.

Without --server the service runs inside this program. It then has your own access rights: like curl, it reaches every address and port that you can reach. Only mcp reaches no more than public addresses, because a language model chooses its URLs.`

const overviewExamples = `  fetchctl get https://example.org/
  fetchctl get -o page.html --profile download https://example.org/big.html
  fetchctl download -d images -i urls.txt
  fetchctl warc check crawl.warc.gz
  fetchctl explain --status 503 -H 'Retry-After: 5'
  fetchctl demo
`

// Help implements kong.HelpProvider.
func (c *getCmd) Help() string {
	return `The body goes to standard output, or to FILE with -o. FILE appears only when the body is complete and correct. If standard output is a terminal, control characters in the body are escaped; "-o -" writes them unchanged.

If the connection breaks within a body, fetchd continues the body, provided that the origin sent a strong validator and accepts ranges. Otherwise -o FILE starts again from the first byte while attempts are left. Output to standard output cannot be taken back, so there the fetch fails, unless the whole body fits into the buffer (512 KiB).

Attempts are printed to standard error as they end, one line each. A terminal also counts down each wait and says what asked for it. If you interrupt a fetch, the last lines say how far it was. --json prints every event as one line of JSON instead (fetchd.v1.FetchEvent with the field names of the proto file), without the data of body chunks. The lines go to standard error; with -o FILE they go to standard output.

A failed fetch writes no FILE, and usually nothing to standard output. The exception is a body larger than the buffer that is truncated, too long or has the wrong digest: standard output then has the beginning of it. The first lines of an error page are printed to standard error.

--store lets the service write the body to a store that its operator has configured. The object appears when the body is complete and correct, and a line on standard error has its store, key and entity tag. Standard output is empty, except with --json, which prints the events there. --stores-file configures the stores of the service inside fetchctl: YAML with names and URLs, as docs/stores.md describes.

Flags of curl mean what they mean there. For those that get does not have, and for those of wget, the error says what to use instead; the table below has all of them. --json before JSON or @FILE sends that, as curl does; anywhere else it prints events. A password on the command line is visible to other users of the machine: -u USER asks for it on the terminal. -O takes the name that the origin gives with Content-Disposition, or else the last segment of the URL; it is made safe as "fetchctl download" does it.

The service inside fetchctl uses the proxy of --proxy, or the one that the environment names for the scheme of the URL, unless NO_PROXY has its host or it is on this machine. Each redirect is asked for in the same way. Errors of the service inside name the resolver and the proxy; those of a service at --server do not.

--warc appends to a WARC file what was on the connection: a request record and a response record for each exchange, with those of redirects and failed attempts. HTTP/1.1 is used. A line on standard error has the place of the last record; -v prints the place of each one, and --json has all of them in the outcome. Credentials and cookies are recorded as they were sent, except for those of -u. --record does the same in a store of the service, whose operator can redact header fields.

--sign-key and --sign-agent sign each request to an https origin as Web Bot Auth, also after a redirect and for a retry, with a new signature each time. The origin verifies it with the public key that the agent publishes. A request in plaintext, after a redirect to http, is not signed. "fetchd keys new FOLDER" makes a key, and docs/signing.md says how to publish it. With --server, --auth-provider names a provider of that service.

--trace draws the fetch to scale on standard error: a bar for each hop with one character for each phase, and each wait with its length, rule and source. It uses ASCII if the locale is not UTF-8. "blocked" is the time that belongs to no phase.`
}

// Manual lists the exit codes and examples of the command.
func (c *getCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitTransient, cli.ExitPermanent, cli.ExitRateLimited, cli.ExitNeedsAuth, cli.ExitNotIdempotent, cli.ExitService, cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitOK, "success, 304, or a redirect that is not followed").
		With(cli.ExitNotIdempotent, "the request was not sent again, because it may have taken effect; also if the service was lost in between"), Tables: reflexHelp(), Answers: answers(), Examples: `
  fetchctl get https://example.org/
  fetchctl get -v -o page.html https://example.org/
  fetchctl get -r 10 --profile download -o image.iso https://example.org/image.iso
  fetchctl get -d @order.json -H 'Content-Type: application/json' \
      --idempotency-key order-17 https://api.example.org/orders
  fetchctl get -H 'If-None-Match: "abc"' https://example.org/feed.xml
  fetchctl get --json -o /dev/null https://example.org/ | jq .outcome
  fetchctl get -q --trace -o /dev/null https://example.org/
  fetchctl get --warc crawl.warc.gz -o page.html https://example.org/
  fetchctl get --sign-key keys --sign-agent https://bot.example.com https://example.org/
  fetchctl get --server fetchd.internal:8080 https://example.org/
  fetchctl get --server fetchd.internal:8080 --store archive --key 2026/report.pdf https://example.org/report.pdf
  fetchctl get --server fetchd.internal:8080 --tls --token-file ~/.fetchd-token https://example.org/
`}
}

// Help implements kong.HelpProvider.
func (c *downloadCmd) Help() string {
	return `The name of a file is the second column of the list. If there is none, it is the name that the origin gives with Content-Disposition, or else the last segment of the URL without its query. Names are made safe: no separators, no leading dots or dashes, no control characters, no device names of Windows, at most 240 bytes. If two URLs want the same name, the name of the second one gets a suffix made from its URL. Existing files are not changed. If the name is known in advance, no request is made for them.

An unfinished file is called NAME.part, and NAME.part.json records how far it has come. The next run with the same URL continues there, however this run ended. That requires a strong ETag or a Last-Modified date, and the same file on the origin; otherwise the file starts again. A file gets its name when it is complete and, with --sha256sums, has the listed digest.

Retries follow the service's "download" profile: longer waits with jitter, and 408 is retried. A body that breaks is continued if the origin allows it, and fetched again from the start if not.

--warc records every request and response in one WARC file, also those of failed attempts. A part that is continued has its own exchange: the record of its 206 response has the rest of the file, and an earlier record has the beginning.

--sign-key and --sign-agent sign the requests for https URLs, as "fetchctl get" does. http URLs are fetched without a signature, and a line says how many they are. With --server, --auth-provider names a provider of that service; a URL that the provider does not cover fails.

The last line counts the files, and the retries: all attempts except the first one of each file, and how many files needed them.

If files failed in several ways, the exit code is the first of 21, 20, 2, 11, 13, 12, 10. After 10, the same command may succeed a little later.`
}

// Manual lists the exit codes and examples of the command.
func (c *downloadCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitTransient, cli.ExitPermanent, cli.ExitRateLimited, cli.ExitNeedsAuth, cli.ExitService, cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitOK, "all files are there"), Examples: `
  fetchctl download https://example.org/image.iso
  fetchctl download -d images -j 8 --limit-rate 2m -i urls.txt
  fetchctl download -d release --sha256sums SHA256SUMS -i urls.txt
  grep -o 'https://[^"]*pdf' page.html | fetchctl download -d papers -
  fetchctl download --json -q -i urls.txt | jq -r 'select(.result == "failed") | .url'
`}
}

// Help implements kong.HelpProvider.
func (c *warcIndexCmd) Help() string {
	return `Prints a line for each response, revisit, resource, metadata or conversion record: the key of the URL (SURT), the time, and JSON with url, mime, status, digest, length, offset and filename. Replay programs such as pywb find records with it. The lines are sorted by their bytes, as "LC_ALL=C sort" does.

More than 32 MiB of lines are sorted in temporary files in $TMPDIR, which become about as large as the index. The memory of the program does not grow with the files: it stays below about 150 MiB.

Only whole records that can be read alone are in the index. A file that is truncated or damaged is indexed up to there; the rest is an error.`
}

// Manual lists the exit codes and examples of the command.
func (c *warcIndexCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitFailed, "a file cannot be read to its end, or has records that cannot be read alone"), Examples: `
  fetchctl warc index crawl-*.warc.gz > crawl.cdxj
  fetchctl warc index - < crawl.warc
`}
}

// Help implements kong.HelpProvider.
func (c *warcCheckCmd) Help() string {
	return `Reads every record, and prints a line for each problem: file, offset, type, record id, what is wrong. The last line counts the records. Checked are

  - the fields: those that must be there, those that a type cannot have, their values
  - the digests of blocks and payloads (SHA-1 and SHA-256)
  - that a compressed record is one gzip member
  - Content-Length against the block, and that of an HTTP head against the payload
  - that HTTP heads can be parsed, and that chunked bodies are whole, unless
    the record says that it is truncated
  - record ids that occur twice
  - WARC-Concurrent-To, WARC-Refers-To and WARC-Warcinfo-ID, in all FILEs together

A record that is referred to may be in a file that is not given. That is counted, and is not a problem, except for WARC-Concurrent-To.

If a file ends inside a record, the line has the length to which it must be truncated. It is then a correct file. More than 32 MiB of references are compared in temporary files in $TMPDIR. The memory of the program does not grow with the files: it stays below about 150 MiB.`
}

// Manual lists the exit codes and examples of the command.
func (c *warcCheckCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitOK, "no problem").
		With(cli.ExitFailed, "there is a problem, or temporary files cannot be written"), Examples: `
  fetchctl warc check crawl-*.warc.gz
  zcat crawl.warc.gz | fetchctl warc check -
`}
}

// Help implements kong.HelpProvider.
func (c *explainCmd) Help() string {
	return `Describe what was observed: a response (--status, -H, --location), an error (--fault), or both, and what happened before. Or give a fetchd.v1.ExplainRequest as JSON: @FILE.json, or - for standard input. --rule prints the meaning of a rule instead.`
}

// Manual lists the exit codes and examples of the command.
func (c *explainCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitService, cli.ExitOutput, cli.ExitInterrupted), Examples: `
  fetchctl explain --status 503
  fetchctl explain --status 429 -H 'Retry-After: 120'
  fetchctl explain --fault body_interrupted --body-committed
  fetchctl explain --method POST --status 503
  fetchctl explain --status 302 --location https://other.example/ --redirects 5
  echo '{"response": {"status_code": 503}, "attempt": 3}' | fetchctl explain --json -
`}
}

// Help implements kong.HelpProvider.
func (c *mcpCmd) Help() string {
	return `A client of the Model Context Protocol starts this program and calls its tools: "fetch" returns the text of a page in windows, with HTML as Markdown, and "explain" says what follows from a failure. The arguments of "fetch" are those of the reference fetch server, so its configuration needs one change. docs/agents.md has it.

The model chooses URLs, so the service inside reaches public addresses on ports 80 and 443 only, unless --egress-allow-cidr and --egress-allow-port allow more. The model chooses no method, header or store, and sees no credential.

A page is fetched only if the robots.txt of its origin allows it. Further windows of a page come from memory for 15 minutes, from at most 8 pages of the maximum size.

When standard input ends, the program answers the calls that it has read, and ends. Standard output belongs to the protocol; messages go to standard error.`
}

// Manual lists the exit codes and examples of the command.
func (c *mcpCmd) Manual() cli.Manual {
	return cli.Manual{Answers: map[string]string{"--proxy-url": "a proxy would choose the addresses. Name a fetchd that has --egress-proxy with --server"}, Exits: cli.Codes(cli.ExitService, cli.ExitInterrupted).
		With(cli.ExitOK, "standard input has ended, and every call is answered").
		With(cli.ExitFailed, "the client broke the protocol"), Examples: `
  fetchctl mcp
  fetchctl mcp --structured
  fetchctl mcp --user-agent 'acme-agent/1.0 (+https://acme.example/agent)'
  fetchctl mcp --server fetchd.internal:8080 --auth-provider wiki=https://wiki.acme.example
`}
}

// Help implements kong.HelpProvider.
func (c *demoCmd) Help() string {
	return `Starts a misbehaving origin and the service, both on loopback, and runs one scenario after the other. Each scenario is checked twice: by what the service reported and by what the origin saw. It needs no internet access, and the egress policy of the service is active.

--break RULE shows that the checks can fail. It runs only the scenarios about that rule, with an origin that gives the rule no occasion to apply.`
}

// Manual lists the exit codes and examples of the command.
func (c *demoCmd) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitOK, "every check held").
		With(cli.ExitFailed, "a check did not hold").
		With(cli.ExitService, "the origin or the service could not start"), Examples: `
  fetchctl demo
  fetchctl demo --list
  fetchctl demo --break W2
`}
}
