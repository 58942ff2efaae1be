// Package policies reads the file of --policies-file. It returns the policy of a caller, and decides what that
// policy forbids. A policy narrows what the settings of the service permit, and never widens it.
//
// A [Set] is one file as it was read. It never changes, so a call sees one set or another, and never half of
// one.
package policies
