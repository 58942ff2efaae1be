// Package stores tests bodies that fetchd writes to stores, with what only processes have: kills, memory and
// secrets. The bucket is one of versitygw. The tests of package stores have the faults of requests to a bucket.
//
// The tests need Linux and run only where FETCHD_LONG is 1. .ci/run stores runs the short
// form; .ci/run stores-all has more kills and larger bodies. To run one test:
//
//	FETCHD_LONG=1 go test -v ./test/stores -run TestKill
package stores
