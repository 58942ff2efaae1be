// Package links checks the repository's documents: links in Markdown must lead to a file and a
// heading that exist, and every rule number that code or documents cite must be defined. It has
// tests only, and needs no network.
package links
