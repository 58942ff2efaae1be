// Package browser tests the console, the page of the frontier and the pages of conformance/site in a
// real browser: headless Chromium, driven through its DevTools protocol.
//
// The tests run if FETCHD_LONG is 1, which .ci/run console sets, and take a minute. Without
// Chromium they are skipped, unless CI is true. They use loopback only, and close the browser
// that they start. TestAxe, TestFrontierAxe and TestSiteAxe need axe-core, and TestCopyAsRuns needs the package for
// Node; .ci/run console installs both.
package browser
