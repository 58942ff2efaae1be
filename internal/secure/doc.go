// Package secure authenticates the service to its callers, and callers to the service: with
// certificates ([ReadCertificates], [Config]) and tokens ([ReadTokens]). [Callers] derives the name
// of a caller from them.
//
// Values that are read from files are immutable. To reload, a program reads the files again and
// replaces the value. A handshake or call in progress keeps the old value. The package opens no
// sockets, watches no files and writes no log. Its errors never contain a token or a private key.
package secure
