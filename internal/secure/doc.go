// Package secure is how the service shows itself to callers and tells them
// apart: certificates ([ReadCertificates], [Config]), tokens ([ReadTokens]) and
// the names that both give ([Callers]).
//
// What is read is immutable. A program that reads its files again puts the new
// value where the old one was; a handshake or call that has begun keeps the old.
// Nothing here opens a socket, watches a file or writes a log, and no error
// holds a token or a private key.
package secure
