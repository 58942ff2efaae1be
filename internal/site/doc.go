// Package site is an origin of many hosts for crawls: it serves every name
// under one suffix on one loopback port, with a name server that says so, and
// keeps a journal from which politeness and rates are computed.
//
// [Start] opens both. [Site.URL] names a page of a host, [Site.Resolver] finds
// the host. Paths are the same on every host, and methods do not matter:
//
//	/robots.txt              what Config.Robots says of the host
//	/p/N                     a page of a few hundred bytes, unique to host and N;
//	                         it has an ETag, and If-None-Match is answered by 304
//	/                        the same as /p/0
//	/slow/MS/N               the page N after MS milliseconds, at most an hour
//	/go/STATUS/N?to=URL      a redirect (301, 302, 303, 307, 308) to URL, which is
//	                         absolute or a path of the same host
//	/s/KEY/STEP/STEP/...     any fault: the script of conformance/origin
//	/r/..., /loop/..., /loop2/...
//	                         the redirect helpers of conformance/origin
//
// All else is 404. KEY is counted over all hosts. After an answer to /s/ the
// connection ends, so the step close-idle is an ordinary 200 here. The helper
// /cross and the origin's pages about itself are not served: /go reaches other
// hosts, and [Site.Origin] has the log.
//
// The journal tells requests apart by their URLs alone. A redirect that the
// site makes adds the mark via=r to the query of its Location, and a request
// with a parameter via is [Redirected]. A step of /s/ that redirects has to
// carry the mark in its own parameter: 302:to=%2Fp%2F7%3Fvia=r. A URL
// with the mark that is asked for directly counts as Redirected too.
//
// [Early] checks the journal against a delay, [Tally] counts it.
//
// It is a tool for tests and demos: do not expose it to a network.
package site
