// Package imports checks what packages and binaries link against the import order of
// docs/design.md. The linter sees the imports of one file; these tests ask the go command
// for all dependencies. They are part of go test ./... and take a few seconds.
package imports
