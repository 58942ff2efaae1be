// Package browser holds the tests of the console in a real browser: headless
// Chromium, driven by its own protocol. They take a minute and run where
// FETCHD_LONG is 1, which .ci/run console sets; without Chromium they are skipped,
// except where CI is true. They reach loopback only, and end the browser that they
// start. Pictures of the page go to the artifacts of TestLooks: go test -artifacts
// keeps them.
package browser
