// Command frontier stores the URLs of a crawl and decides when each one is fetched.
//
//	frontier add       add URLs from arguments, lists and sitemaps
//	frontier run       fetch what is in the frontier
//	frontier status    count URLs and hosts
//	frontier why URL   show why a URL is not being fetched now
//	frontier retry     try failed URLs again, or fetch old ones again
//	frontier export    write the URLs or the fetches as JSON lines or CSV
//	frontier pause     start no more fetches, of the whole crawl or of one host
//	frontier resume    end a pause
//	frontier set       set the delay or the number of fetches at once of one host
//
// Everything is in one database, a SQLite file or PostgreSQL, which --db names. Several of these
// commands may run at once on one database.
package main
