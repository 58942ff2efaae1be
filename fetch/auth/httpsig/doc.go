// Package httpsig makes HTTP message signatures (RFC 9421) of requests.
//
// A [Signer] covers the components that its operator configured: derived ones such as
// @authority, and fields. It signs with Ed25519, ECDSA P-256 or HMAC-SHA256. If
// Content-Digest (RFC 9530) is covered, the signer computes it. The profile
// [WebBotAuth] names the signer with a Signature-Agent field, and [Directory] returns the
// public keys that such a signer publishes.
//
// [Signer.Choose] reads an Accept-Signature field, with which an origin asks for a signature, and lets it
// choose only among what the operator configured. No fetch calls it yet.
//
// The package does no I/O and reads no clock. Its errors contain no key and no value of a
// field.
package httpsig
