// Package peers runs wire scenarios of package conformance against servers that
// are not of this project: nginx, go-httpbin, and Toxiproxy in front of nginx. What
// must hold is the same; an origin of our own could share our mistakes.
//
// It has tests alone, which take FETCHD_LONG=1 and an nginx.
package peers
