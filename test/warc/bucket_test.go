//go:build linux

package warc

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/rig/linktest"
)

// TestBucket records into a bucket. The bucket is down for a while, and fetchd is killed while files
// wait for their upload. Every record that an outcome names must be in a whole file of the bucket.
func TestBucket(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 4*time.Minute)
	o, b, spool := rig.Site(t, site.Config{}), rig.NewBucket(ctx, t, "records"), t.TempDir()
	link := linktest.New(t, b.Address)
	e := entry{URL: "warc+s3://" + b.Query(link.Addr().String()), SpoolDir: spool, MaxFileBytes: 100_000,
		AccessKeyID: rig.BucketKeyID, SecretAccessKey: rig.BucketSecret}
	urls := pages(o, 600)
	s := start(ctx, t, e, resolving(o)...)
	outcomes := s.fetchAll(ctx, urls[:200])
	rig.Until(ctx, t, "files are in the bucket", func() bool { return len(wholeFiles(t, b.Dir)) >= 2 })

	b.Stop()
	outcomes = append(outcomes, s.fetchAll(ctx, urls[200:400])...)
	waiting := len(wholeFiles(t, spool))
	rig.AtLeast(t, "files that wait while the bucket is down", waiting, 2)
	b.Start(ctx)
	uploaded(ctx, t, spool)

	link.Add(linktest.Toxic{Kind: "bandwidth", Stream: linktest.Up, Attributes: map[string]int{"rate": 0}})
	outcomes = append(outcomes, s.fetchAll(ctx, urls[400:])...)
	s.Signal(syscall.SIGKILL)
	<-s.Gone
	rig.AtLeast(t, "files that wait when fetchd is killed", len(wholeFiles(t, spool)), 2)
	link.Renew()
	s = start(ctx, t, e, resolving(o)...)
	rig.Until(ctx, t, "the files of the killed service are closed", func() bool { return len(openFiles(t, spool)) == 0 })
	uploaded(ctx, t, spool)
	s.Stop()

	wantSuccesses(t, outcomes)
	files := wholeFiles(t, b.Dir)
	records := newChecker(t).read(ctx, t, files...)
	wantNamed(t, outcomes, records)
	wantRequests(t, o, records)
	left, err := os.ReadDir(spool)
	if err != nil || len(left) > 0 {
		t.Errorf("the folder for spools has %v, %v", left, err)
	}
	t.Logf("%d files with %d records; %d waited while the bucket was down", len(files), len(records), waiting)
}

// uploaded waits until no whole file is in the spool.
func uploaded(ctx context.Context, t *testing.T, spool string) {
	t.Helper()
	rig.Until(ctx, t, "all whole files are in the bucket", func() bool { return len(wholeFiles(t, spool)) == 0 })
}

// wantSuccesses checks that no fetch failed because of its store.
func wantSuccesses(t *testing.T, outcomes []*pb.FetchOutcome) {
	t.Helper()
	for _, out := range outcomes {
		if e := out.GetError(); e.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_STORE_FAILURE {
			t.Errorf("%s: %s", strings.TrimPrefix(out.GetFinalUrl(), "http://"), e.GetDetail())
		}
	}
}
