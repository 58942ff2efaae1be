// Package robots reads robots.txt and says what it allows: RFC 9309.
//
// [Judge] makes a [Policy] of what a fetch of /robots.txt came to, and
// [Policy.Decide] says of one URL whether it may be fetched, and by which line.
// While a file cannot be reached the policy defers everything;
// [Policy.After] tells when rules of an earlier fetch may be used again.
// [Parse] is for those who have a file at hand.
//
// A file is read for one crawler, and nothing is kept but its rules: at most
// [MaxSize] bytes, whatever the file has in it.
//
// Crawl-delay is no part of the RFC. It is read and handed on; what the greatest
// delay is, is the caller's to say. Sitemap lines are passed over.
//
// The package fetches nothing, keeps nothing and has no clock.
package robots
