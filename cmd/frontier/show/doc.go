// Package show formats what a frontier knows, for people and as JSON: the counts of "frontier status", the
// reasons of "frontier why", the files of "frontier robots" and the rows of "frontier export".
package show
