//go:build linux

package stores

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"fetchd/test/must"
	"fetchd/test/rig"
)

// bucket is the name of the bucket of each [server].
const bucket = "bodies"

// server is an S3 server with one bucket.
type server struct {
	*rig.Bucket
	client *s3.Client
}

func newServer(ctx context.Context, t *testing.T) *server {
	t.Helper()
	b := rig.NewBucket(ctx, t, bucket)
	return &server{b, s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + b.Address), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(rig.BucketKeyID, rig.BucketSecret, ""),
	})}
}

// entry returns a store at the server, without a link between them.
func (s *server) entry(prefix string) entry {
	return entry{URL: "s3://" + s.Query(s.Address), Prefix: prefix, AccessKeyID: rig.BucketKeyID, SecretAccessKey: rig.BucketSecret}
}

// objects returns the sizes of the visible objects by key.
func (s *server) objects(ctx context.Context) map[string]int64 {
	s.Helper()
	sizes := make(map[string]int64)
	for pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: aws.String(bucket)}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		must.Succeed(s, err)
		for _, o := range page.Contents {
			sizes[aws.ToString(o.Key)] = aws.ToInt64(o.Size)
		}
	}
	return sizes
}

// digest reads an object and returns its SHA-256.
func (s *server) digest(ctx context.Context, key string) string {
	s.Helper()
	object, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
	if err != nil {
		s.Fatalf("read %s: %v", key, err)
	}
	defer object.Body.Close()
	return digestOf(s, object.Body)
}

// unfinished returns the keys of the multipart uploads that were neither completed nor aborted.
func (s *server) unfinished(ctx context.Context) []string {
	s.Helper()
	var keys []string
	for pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: aws.String(bucket)}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		must.Succeed(s, err)
		for _, u := range page.Uploads {
			keys = append(keys, aws.ToString(u.Key))
		}
	}
	return keys
}

func (s *server) remove(ctx context.Context, key string) {
	s.Helper()
	if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)}); err != nil {
		s.Errorf("remove %s: %v", key, err)
	}
}

// directory is the folder of a file store.
type directory string

// objects returns the sizes of the visible objects by key.
func (d directory) objects(t *testing.T) map[string]int64 { return d.list(t, false) }

// unfinished returns the temporary files.
func (d directory) unfinished(t *testing.T) []string {
	t.Helper()
	var names []string
	for name := range d.list(t, true) {
		names = append(names, name)
	}
	return names
}

// list returns the sizes of the temporary files, or of the objects. A fetchd may be writing meanwhile.
func (d directory) list(t *testing.T, incoming bool) map[string]int64 {
	t.Helper()
	sizes := make(map[string]int64)
	err := filepath.WalkDir(string(d), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return nil
		}
		var info fs.FileInfo
		if err == nil {
			info, err = e.Info()
		}
		if errors.Is(err, fs.ErrNotExist) { // a temporary file that has just become an object
			return nil
		}
		if err != nil {
			return err
		}
		key, err := filepath.Rel(string(d), path)
		if strings.HasPrefix(key, ".incoming/") == incoming {
			sizes[key] = info.Size()
		}
		return err
	})
	must.Succeed(t, err)
	return sizes
}

func (d directory) digest(t *testing.T, key string) string {
	t.Helper()
	file, err := os.Open(filepath.Join(string(d), key))
	must.Succeed(t, err)
	defer file.Close()
	return digestOf(t, file)
}

func digestOf(t testing.TB, r io.Reader) string {
	t.Helper()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
