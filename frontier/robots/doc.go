// Package robots reads robots.txt and says what it allows: RFC 9309.
//
// [Judge] makes a [Policy] of what a fetch of /robots.txt came to, and
// [Policy.Decide] says of one URL whether it may be fetched, and by which line.
// While a file cannot be reached the policy defers everything;
// [Policy.After] tells when rules of an earlier fetch may be used again.
// [Parse] and [File.Rules] are the parts, for those who have a file at hand.
//
// Crawl-delay and Sitemap are no part of the RFC. They are read and handed on;
// what the greatest delay is, is the caller's to say.
//
// The package fetches nothing, keeps nothing and has no clock.
package robots
