package server

import _ "embed"

// descriptor is the contract as .ci/generate compiles it, with the comments, which
// the generated code leaves out.
//
//go:embed descriptor.binpb
var descriptor []byte
