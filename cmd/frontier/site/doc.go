// Package site is a web site of many hosts for tests of crawls. It serves every name below one
// suffix on one loopback port, with its own name server, and keeps a journal that shows whether a
// crawler was polite.
//
// [Start] starts both servers. [Site.URL] returns the URL of a page, and [Site.Resolver] finds the
// hosts. All hosts have the same paths, and methods do not matter:
//
//	/robots.txt              what Config.Robots returns for the host
//	/p/N                     a page of a few hundred bytes, unique to host and N;
//	                         it has an ETag, and If-None-Match gets a 304
//	/                        the same as /p/0
//	/slow/MS/N               page N after MS milliseconds, at most an hour
//	/go/STATUS/N?to=URL      a redirect (301, 302, 303, 307, 308) to URL, which is
//	                         absolute or a path of the same host
//	/x/...                   what Config.Page returns
//	/s/KEY/STEP/STEP/...     any fault: a script of conformance/origin
//	/r/..., /loop/..., /loop2/...
//	                         the redirect helpers of conformance/origin
//
// Every other path is a 404. KEY counts requests to all hosts. The site closes the connection after
// an answer to /s/, so the step close-idle is an ordinary 200 here. It does not serve the helper
// /cross and the origin's pages about itself: /go redirects to other hosts, and [Site.Origin] has
// the log.
//
// The journal distinguishes requests by their URLs alone. A redirect by the site adds the mark
// via=r to the query of its Location, and a request with a parameter via is [Redirected]. A step of
// /s/ that redirects must include the mark itself: 302:to=%2Fp%2F7%3Fvia=r. If a client requests a
// marked URL directly, that counts as Redirected too.
//
// [Early] finds requests that came too early.
//
// The package is for tests and demos. Do not expose a site to a network.
package site
