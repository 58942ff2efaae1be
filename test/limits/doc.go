// Package limits runs the binary in a real memory cgroup, with the shipped
// manifest's settings and with none, under hostile load of every known shape.
// Each row of its table is one attack. The service must survive it within the
// cgroup's limit, keep answering other callers, end every fetch that it admitted, and
// return to its idle size.
//
// TestDoor crowds the ports of fetchd and of frontier serve with connections of
// strangers, from one core, next to callers with a token and health checks on the other. It runs
// in its own network namespace. The long form has all numbers of addresses.
//
// TestFloods floods the gRPC ports of both with calls that are cancelled, do not arrive or are refused.
//
// The rows need Linux, root and a writable memory controller (cgroup v1 or v2),
// and run only where FETCHD_LONG is 1. They reach loopback only. .ci/run limits
// runs each row once, within 256 MiB; .ci/run limits-all runs every row within
// 256 MiB, 512 MiB and 1 GiB under both settings, and prints a table. .ci/run limits-v2
// runs the rows of the gate with cgroup v2, whatever this machine has. To run one row:
//
//	FETCHD_LONG=1 FETCHD_LIMITS=all go test -v ./test/limits -run 'TestLimits/512MiB/shipped/unread-small$'
package limits
