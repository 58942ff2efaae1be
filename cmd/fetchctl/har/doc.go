// Package har writes a fetch as an HTTP Archive 1.2, which the developer tools of browsers can
// open.
//
// An archive has an entry for each hop of each attempt, and a page for each attempt with the
// decision as comment. Times come from package timeline. Facts for which the specification has
// no field are in fields that begin with an underscore:
//
//   - log: _fetchId, _outcome
//   - entry: _attempt, _hop, _rule, _protocol, _tlsVersion, _tlsCipherSuite, _alpnProtocol,
//     _certificate (of the origin), _connectionReused, _backpressure (milliseconds in which the
//     caller did not read; they are a part of receive), _error, _unfinished
//   - response: _error, the same in a line, where browsers look for it
//
// Specification: http://www.softwareishard.com/blog/har-12-spec/
package har
