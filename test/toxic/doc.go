// Package toxic tests the service behind a broken network: a Toxiproxy stands
// between the origin and package fetch, or between a caller and package server,
// all in this process and on loopback.
//
// It holds tests only.
package toxic
