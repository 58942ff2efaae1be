// Package robots parses robots.txt and decides what it allows: RFC 9309.
//
// [Judge] turns the result of a fetch of /robots.txt into a [Policy]. [Policy.Decide] says whether a
// URL may be fetched, and by which line. While a file is unreachable, the policy defers everything;
// [Policy.After] says when the rules of an earlier fetch may be used again. [Parse] is for callers
// that already have a file.
//
// A file is parsed for one crawler, and only its rules are kept: at most [MaxSize] bytes for any
// file.
//
// Crawl-delay is not part of the RFC. It is parsed and returned, and the caller limits it. Sitemap
// lines are ignored.
//
// The package fetches nothing, stores nothing and has no clock.
package robots
