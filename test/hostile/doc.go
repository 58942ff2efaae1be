// Package hostile runs the guard board against this tree: a fetchd without settings, and the tool of fetchctl mcp, in a
// network in which every address answers and the kernel counts connections. The rules themselves are decided, and
// tested, in fetch/egress; those of callers in internal/policies.
//
// The test is part of go test ./... and takes some seconds. It needs Linux and root, in a container with
// CAP_SYS_ADMIN and CAP_NET_ADMIN; elsewhere it is skipped.
package hostile
