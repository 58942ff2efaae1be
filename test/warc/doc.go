// Package warc tests the WARC files that fetchd, fetchctl and frontier write. The programs run as
// processes. check.mjs reads the files with the parser of another project, warcio, and fetchctl warc
// check must agree with it.
//
// The tests need Linux and Node, and run only where FETCHD_LONG is 1. .ci/run warc runs the
// short form; .ci/run warc-all crawls more. To run one test:
//
//	FETCHD_LONG=1 go test -v ./test/warc -run TestCrawl
package warc
