// Package links checks the repository's documents: links in Markdown must lead to an existing file
// and heading, every rule number that code or documents cite must be defined, and the picture of
// packages in docs/design.md must match the imports. It has only tests and needs no network.
package links
