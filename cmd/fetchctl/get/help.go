package get

import "fetchd/internal/cli"

// The long texts of --help.

// Help implements kong.HelpProvider.
func (c *Command) Help() string {
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
func (c *Command) Manual() cli.Manual {
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
