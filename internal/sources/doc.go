// Package sources checks docs/sources.md: the table that says, for each
// statement of the source documents, which rule of docs/spec.md it became,
// which symbol carries it out and which test holds it.
//
// [Parse] reads the tables, [Rules] the rules of the specification, and [Load]
// the Go sources. [Check] then holds the first against the other two. Names
// are looked up in parsed sources; nothing is type-checked.
package sources
