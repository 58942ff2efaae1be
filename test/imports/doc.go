// Package imports holds the import order of docs/design.md against what the
// packages and the binaries really link. The linter sees one file at a time;
// the tests here ask the go command for everything that comes along.
package imports
