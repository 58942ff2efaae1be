// Command fetchctl fetches URLs through fetchd and shows what happens.
//
//	fetchctl get URL       fetch one URL: body to standard output or a file
//	fetchctl download      fetch many URLs into files, and continue an interrupted run
//	fetchctl warc          index and check WARC files
//	fetchctl explain       show what would be decided, and by which rule
//	fetchctl mcp           give a language model tools that fetch
//	fetchctl demo          run the rules against an origin that misbehaves
//	fetchctl conformance   judge a server of the contract, or any HTTP client
//
// It only uses the API, fetchd.v1.FetchService. Without --server it runs the service inside
// the process, with the user's own access rights: like curl, it reaches any address and port.
// Only mcp, whose URLs a model chooses, reaches public addresses alone.
//
// The exit codes are those of package internal/cli: 10 to 13 for a fetch that failed at the
// origin, others for errors of the program and the service. See fetchctl --help.
package main
