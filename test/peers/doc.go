// Package peers runs wire scenarios of package conformance against nginx. The expectations stay
// the same. It also fetches through the proxies tinyproxy and microsocks, calls fetchd through nginx, and has
// packages of npm verify the signatures of requests. The origin of this project could share its mistakes; these
// programs do not.
//
// The tests run if FETCHD_LONG is 1, which .ci/run peers sets. They need nginx, tinyproxy,
// microsocks, Node and npm, and take about seven minutes.
package peers
