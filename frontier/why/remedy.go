package why

import (
	"fmt"

	"fetchd/internal/cli"
)

const (
	siteAway     = "the site cannot be reached, or the connection broke: if this affects all sites, check your network; otherwise wait until the site works"
	siteBroken   = "the site's answer is not usable: nothing to do unless the site changes"
	serviceEnded = "the fetchd ended before the fetch did: check whether it is running"
)

// Hints has, for each error class, what was wrong with its URLs and what to do before a retry.
var Hints = map[string]string{
	"dns_not_found":           "the host does not exist: check its name, or your name server if this affects all hosts",
	"dns_failure":             "the name server did not answer: check your network",
	"connect_refused":         siteAway,
	"connect_timeout":         siteAway,
	"connect_failure":         siteAway,
	"connection_reset":        siteAway,
	"tls_handshake":           siteAway,
	"tls_certificate":         "the site's certificate is not acceptable: nothing to do until the site renews it",
	"response_timeout":        siteAway,
	"write_timeout":           siteAway,
	"body_interrupted":        siteAway,
	"body_timeout":            siteAway,
	"protocol":                siteBroken,
	"attempt_timeout":         siteAway,
	"http_server_error":       "the site fails (5xx): wait until it works",
	"rate_limited":            `the site wants fewer requests (429): set a longer delay with "frontier set HOST --delay 10s"`,
	"auth_required":           "the site requires credentials (401), which a crawl does not have: nothing to do",
	"forbidden":               "the site refuses this crawler or this page (403): say with --user-agent who you are and how to reach you",
	"request_timeout":         siteAway,
	"http_client_error":       "the page is not there, or the site refuses the request (4xx): nothing to do unless the site changes",
	"unexpected_not_modified": siteBroken,
	"too_many_redirects":      "there are more redirects than CRAWLER_MAX_REDIRECTS: raise it, up to 20",
	"redirect_loop":           "the redirects form a loop: nothing to do unless the site changes",
	"redirect_rejected":       "a redirect leads to a URL that is not http or https: nothing to do unless the site changes",
	"content_type":            "the media type is not accepted: add it with --accept, or use --accept any",
	"empty_body":              "the page is empty: --accept any accepts empty pages too",
	"undecodable":             "the body is not valid in its content coding, or in its charset if --require-valid-charset is given: nothing to do unless the site changes",
	"body_too_large":          "the body is longer than --max-body-bytes: raise it",
	"integrity":               siteBroken,
	"target_blocked":          "fetchd may not connect to the address or port: allow it with --egress-allow-cidr and --egress-allow-port, or in the settings of the fetchd behind --server; if last_error names a policy, permit it there",
	"invalid_request":         `fetchd rejects the URL, or a flag of "frontier crawl": last_error names the field`,
	"deadline":                "the fetch took longer than --total-timeout: raise it",
	"cancelled":               serviceEnded,
	"shutdown":                serviceEnded,
	"internal":                "fetchd failed: its log says why",
	"store_failure":           "the place of the WARC records cannot be written: look into the log of the run",
	"out_of_memory":           "fetchd had no memory left for the fetch: give it more, or lower --open",
	"robots_disallowed":       "robots.txt forbids it: nothing to do unless the site changes that file, which a retry reads again",
	"robots_unreachable":      "robots.txt was unreachable for more than an hour: wait until the site works",
	"crashed":                 "the process that fetched it ended each time: look into the log of fetchd",
	"out_of_scope":            "a redirect leads out of the scope: add its target as a seed, or use a wider --scope",
	"over_budget":             "the host has used up --max-bytes-per-host: raise it",
	"bad_sitemap":             "the sitemap is not valid, or too long: nothing to do unless the site changes",
	"host_aborted":            `another URL aborted its host (--on CLASS=abort-host): "frontier export" shows its class`,
}

// Remedy returns what to do about URLs that failed for good in a class, which may be
// empty or unknown. It starts in lower case and has no full stop.
func Remedy(class string) string {
	if class == "" {
		return `"frontier retry" tries again`
	}
	retry := fmt.Sprintf(`"frontier retry --class %s" tries these URLs again`, cli.Escape(class))
	if hint, ok := Hints[class]; ok {
		return hint + "; " + retry
	}
	return retry
}
