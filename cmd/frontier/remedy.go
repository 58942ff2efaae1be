package main

import (
	"fmt"

	"fetchd/internal/cli"
)

const (
	siteAway     = "the site could not be reached, or broke off: check your own network if all sites fail so, else wait until this one works"
	siteBroken   = "the site answers in a way that is of no use: nothing to do unless the site changes"
	serviceEnded = "the fetchd ended before the fetch did: check whether it runs"
)

// hints say what was wrong with URLs of an error class, and what to do before they are
// tried again.
var hints = map[string]string{
	"dns_not_found":           "the host does not exist: check its name, and your name server if all hosts fail so",
	"dns_failure":             "the name server did not answer: check your own network",
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
	"rate_limited":            `the site wants fewer requests (429): give the host a longer delay with "frontier set HOST --delay 10s"`,
	"auth_required":           "the site wants credentials (401), which a crawl has none of: nothing to do",
	"forbidden":               "the site refuses this crawler or this page (403): say with --user-agent who you are and how you can be reached",
	"request_timeout":         siteAway,
	"http_client_error":       "the page is not there, or the site refuses the request (4xx): nothing to do unless the site changes",
	"unexpected_not_modified": siteBroken,
	"too_many_redirects":      "there are more redirects than --max-redirects: raise it, up to 20, or give --queue-redirects",
	"redirect_loop":           "the redirects lead in a loop: nothing to do unless the site changes",
	"redirect_rejected":       "a redirect leads to what is no http or https URL: nothing to do unless the site changes",
	"content_type":            "the media type is not wanted: name it with --accept, or give --accept any",
	"empty_body":              "the page is empty: --accept any takes empty pages too",
	"undecodable":             siteBroken,
	"body_too_large":          "the body is longer than --max-body-bytes: raise it, up to 1 MiB, or give --truncate-bodies",
	"integrity":               siteBroken,
	"target_blocked":          "fetchd may not reach the address or port: open it with --egress-allow-cidr and --egress-allow-port, or in the settings of the fetchd behind --server",
	"invalid_request":         `fetchd refuses the URL, or a flag of "frontier run": last_error names the field`,
	"deadline":                "the fetch took longer than --total-timeout: raise it",
	"cancelled":               serviceEnded,
	"shutdown":                serviceEnded,
	"internal":                "fetchd failed: its log says why",
	"out_of_memory":           "fetchd had no memory left for the fetch: give it more, or lower --open",
	"robots_disallowed":       "robots.txt forbids it: nothing to do unless the site changes that file, which a retry reads again",
	"robots_unreachable":      "robots.txt was out of reach for longer than --robots-patience: wait until the site works",
	"crashed":                 "what fetched it died each time: look into the log of the fetchd",
	"host_aborted":            `another URL of its host ended that host (--on CLASS=abort-host): "frontier export" has its class`,
}

// remedy returns what to do about URLs that failed for good in a class, which may be
// empty or unknown. It begins in lower case and has no full stop.
func remedy(class string) string {
	if class == "" {
		return `"frontier retry" tries again`
	}
	retry := fmt.Sprintf(`"frontier retry --class %s" tries again what failed so`, cli.Escape(class))
	if hint, ok := hints[class]; ok {
		return hint + "; " + retry
	}
	return retry
}
