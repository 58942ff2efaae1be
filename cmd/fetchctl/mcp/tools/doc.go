// Package tools offers fetches to language models, as tools of the Model Context Protocol.
//
// [New] returns a server with one tool. "fetch" fetches a page and returns a window of its text;
// HTML becomes Markdown. The server is a client of fetchd like any other: it uses only the API.
//
// # Limits of the model
//
// The model chooses the URL, the window and the time limit. It chooses no method, no header and no
// store, and sees no credential: of the headers of a response only those that describe the body
// are in a result. robots.txt is honoured unless the operator switches that off.
//
// # Memory
//
// A page has at most [Config.MaxPageBytes] of text. Pages are kept for [KeepFor], at most
// eight times that size together, so that windows of one page fit together although its origin
// changes. At most four fetches run at the same time, and one conversion to Markdown.
package tools
