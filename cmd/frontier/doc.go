// Command frontier keeps the URLs of a crawl and decides when each is fetched.
//
//	frontier add       add URLs from arguments, lists and sitemaps
//	frontier run       fetch what is in the frontier
//	frontier status    count URLs and hosts
//	frontier why URL   say why a URL is not being fetched now
//	frontier retry     try again what failed, or fetch again what is old
//	frontier export    write the tables as JSON lines or CSV
//	frontier pause     stop claims of the crawl or of a host
//	frontier resume    take that back
//	frontier set       give a host a delay or a number of fetches of its own
//
// All that it knows is in one database, a SQLite file or PostgreSQL, which
// --db names. Several of these commands may run at once on one database.
package main
