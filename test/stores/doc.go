// Package stores tests bodies that fetchd writes to stores. fetchd runs as a process, the
// bucket is one of versitygw, and a Toxiproxy is between them.
//
// The tests need Linux and run only where FETCHD_LONG is 1. .ci/run stores runs the short
// form; .ci/run stores-all has more faults, more kills and larger bodies. To run one test:
//
//	FETCHD_LONG=1 go test -v ./test/stores -run 'TestFaults/UploadPart_2'
package stores
