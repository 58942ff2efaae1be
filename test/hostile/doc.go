// Package hostile tests the egress guard in a network where every address answers.
//
// The test creates a network namespace in which all of IPv4 and IPv6 is on loopback, and
// listens everywhere. Then it fetches the targets that an attacker would choose: addresses,
// other spellings of them, names that resolve to them, and redirects to them. The guard may
// open connections only to the one allowed address. The kernel counts the connections. The tools for
// language models fetch them too.
//
// TestPolicies does the same for policies of callers. There the addresses answer, so that the pool
// has connections that one caller may use and another may not.
//
// The tests are part of go test ./... and take some seconds. They need Linux and root, in a
// container with CAP_SYS_ADMIN and CAP_NET_ADMIN; elsewhere they are skipped.
package hostile
