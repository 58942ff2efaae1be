// Package toxic tests the service behind a broken network. A Toxiproxy is between the
// origin and package fetch, or between a caller and package server. Everything runs in the
// test's process, on loopback.
//
// The tests are part of go test ./... and take a few seconds.
package toxic
