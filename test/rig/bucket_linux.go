package rig

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"fetchd/test/must"
	"fetchd/test/need"
)

// The credentials for a [Bucket].
const (
	BucketKeyID  = "the-access-key-of-the-tests"
	BucketSecret = "the-secret-key-of-the-tests-5f2c9"
)

// Bucket is an S3 server with one bucket, whose objects are the files of a folder. It can be
// stopped and started again.
type Bucket struct {
	testing.TB
	Address string
	Dir     string // the folder
	name    string
	program string
	process *Process
}

// NewBucket starts an S3 server with an empty bucket. It stops when the test ends.
func NewBucket(ctx context.Context, t testing.TB, name string) *Bucket {
	t.Helper()
	program := need.Tool(t, "versitygw")
	b := &Bucket{TB: t, Address: FreeAddress(t, "127.0.0.1"), Dir: filepath.Join(t.TempDir(), name), name: name, program: program}
	must.Succeed(t, os.Mkdir(b.Dir, 0o700))
	t.Cleanup(b.Stop)
	b.Start(ctx)
	return b
}

// Start starts the server and waits until it listens.
func (b *Bucket) Start(ctx context.Context) {
	b.Helper()
	var err error
	b.process, err = Start([]string{b.program, "--quiet", "--keep-alive", "--port", b.Address, "--region", "us-east-1", "posix", filepath.Dir(b.Dir)},
		[]string{"ROOT_ACCESS_KEY=" + BucketKeyID, "ROOT_SECRET_KEY=" + BucketSecret}, nil)
	must.Succeed(b, err)
	Until(ctx, b, "the bucket can be reached", func() bool {
		select {
		case <-b.process.Gone:
			b.Fatalf("versitygw has ended: %s", b.process.State)
		default:
		}
		conn, err := net.Dial("tcp", b.Address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// Stop kills the server. Connections to it are refused then.
func (b *Bucket) Stop() {
	if b.process != nil {
		b.process.Signal(syscall.SIGKILL)
		<-b.process.Gone
		b.process = nil
	}
}

// Query returns the part of a store's URL after s3://, for a server or a link to it at address.
func (b *Bucket) Query(address string) string {
	return b.name + "?region=us-east-1&use_path_style=true&endpoint=http://" + address
}
