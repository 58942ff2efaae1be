// Package why says in sentences why a URL is not being fetched now, and what to do about URLs that
// failed. "frontier why", the end report of "frontier crawl" and the API share its sentences.
package why
