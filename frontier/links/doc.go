// Package links finds the links of an HTML document. It reads the document as a stream and needs
// memory for one token and for the links, each of which has a limit.
//
// It finds the links that a reader without scripts can follow:
//
//	a, area          href
//	a in SVG         href or xlink:href
//	link             href, if rel has canonical, next or prev, or alternate of an HTML type
//	iframe, frame    src
//	meta             the URL of http-equiv="refresh"
//
// Links in noscript count. Those in comments, scripts, styles, templates and texts such as textarea
// and title do not. The first base element with an href counts. References are resolved as the URL
// standard says; equal ones once. A query is encoded in the charset of the document.
//
// What is text and what is a tag depends on the open elements in SVG and MathML. Of those the package
// keeps the last 128; of others it knows only how many start tags have no end tag yet. The insertion
// modes of the HTML standard are not followed: links that a tree leaves out, as after a frameset, count.
// XHTML is read as XML by the same tokenizer, and need not be well-formed.
//
// The work of a search is counted as package work says. It has a limit, after which the links found so
// far are returned, and a caller can end it.
//
// A page can ask crawlers not to follow its links: with meta robots, with the header X-Robots-Tag,
// or for one link with rel=nofollow.
package links
