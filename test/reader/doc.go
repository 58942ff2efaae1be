// Package reader measures how well fetch/markdown finds the text of pages, on two public data sets. READER_DATA names a
// folder with clones of them: aeb (github.com/scrapinghub/article-extraction-benchmark) and wcxb
// (github.com/Murrough-Foley/web-content-extraction-benchmark).
//
//	READER_DATA=/tmp/reader go test -v ./test/reader
//
// READER_PART=test measures the test part of wcxb, which is not for tuning.
package reader
