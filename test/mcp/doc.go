// Package mcp tests "fetchctl mcp" with programs of others: the inspector, which calls the tools
// over standard input and output, and the conformance suite of the protocol.
//
// The conformance suite speaks HTTP only, so the test puts the tools behind the HTTP transport of
// the SDK. The program has no such transport. Scenarios that want tools, prompts or resources of
// the suite's own example server are listed in expected-failures.yml, with the reason.
//
// The tests run if FETCHD_LONG is 1, which .ci/run mcp sets. FETCHD_NODE_MODULES is the folder with
// the packages of package-lock.json.
package mcp
