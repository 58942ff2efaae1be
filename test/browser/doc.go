// Package browser tests the console and the page of the frontier in a real browser: headless
// Chromium, driven through its DevTools protocol.
//
// The tests run if FETCHD_LONG is 1, which .ci/run console sets, and take a minute. Without
// Chromium they are skipped, unless CI is true. They use loopback only, and close the browser
// that they start. TestAxe and TestFrontierAxe need axe-core, and TestCopyAsRuns needs the package for Node;
// .ci/run console installs both.
package browser
