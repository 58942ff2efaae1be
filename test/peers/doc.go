// Package peers runs wire scenarios of package conformance against nginx. The expectations stay
// the same. It also fetches through the proxies tinyproxy and microsocks. The origin of this project
// could share its mistakes; these programs do not.
//
// The tests run if FETCHD_LONG is 1, which .ci/run peers sets. They need nginx, tinyproxy and
// microsocks, and take about ten seconds.
package peers
