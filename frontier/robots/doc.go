// Package robots reads robots.txt and says what it allows: RFC 9309.
//
// [Judge] makes a [Policy] of what a fetch of /robots.txt came to, and
// [Policy.Decide] says of one URL whether it may be fetched, and by which line.
// While a file cannot be reached the policy defers everything;
// [Policy.After] tells when rules of an earlier fetch may be used again.
// [Parse] is for callers that already have a file.
//
// A file is read for one crawler, and only its rules are kept: at most [MaxSize] bytes,
// whatever the file contains.
//
// Crawl-delay is not part of the RFC. It is read and returned; the caller limits it.
// Sitemap lines are ignored.
//
// The package fetches nothing, keeps nothing and has no clock.
package robots
