// Command fetchctl fetches URLs through fetchd and shows what happens.
//
//	fetchctl get URL       fetch one URL: body to standard output or a file
//	fetchctl download      fetch many URLs into files, and continue what was cut off
//	fetchctl explain       ask what would be decided, by which rule
//	fetchctl demo          run the rules against an origin that commits faults
//
// It speaks only the contract, fetchd.v1.FetchService. Without --server it runs
// the service inside itself, with its user's own rights: any address and port
// may be reached, as with curl.
//
// What happened at the origin is an exit status of its own kind (10 to 13);
// what this program or the service could not do is another (1, 20, 21). See
// fetchctl --help.
package main
