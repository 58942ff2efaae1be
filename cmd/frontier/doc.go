// Command frontier keeps the URLs of a crawl and decides when each is fetched.
//
//	frontier add       add URLs from arguments, lists and sitemaps
//	frontier export    write the tables as JSON lines or CSV
//
// All that it knows is in one database, a SQLite file or PostgreSQL, which
// --db names. Several of these commands may run at once on one database.
package main
