//go:build linux

package stores

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"fetchd/test/rig"
)

const (
	region    = "us-east-1"
	bucket    = "bodies"
	accessKey = "the-access-key-of-the-tests"
	secretKey = "the-secret-key-of-the-tests-5f2c9"
)

// program returns the path of versitygw, and builds it if it is missing.
var program = sync.OnceValues(func() (string, error) {
	folder, err := exec.Command("../../.ci/tools", "versitygw").Output()
	return filepath.Join(strings.TrimSpace(string(folder)), "versitygw"), err
})

// server is an S3 server with one bucket. It can be stopped and started again.
type server struct {
	*testing.T
	address, dir string
	process      *rig.Process
	client       *s3.Client
}

func newServer(ctx context.Context, t *testing.T) *server {
	t.Helper()
	s := &server{T: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if s.process != nil {
			s.stop()
		}
	})
	for try := 1; ; try++ {
		s.address = rig.FreeAddress(t, "127.0.0.1")
		s.client = s3.New(s3.Options{
			Region: region, BaseEndpoint: aws.String("http://" + s.address), UsePathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
		})
		s.start(ctx)
		_, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(bucket)})
		if err == nil {
			return s
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Logf("another test has taken the port: %v", err)
		s.stop()
	}
}

func (s *server) start(ctx context.Context) {
	s.Helper()
	path, err := program()
	if err != nil {
		s.Fatalf("versitygw cannot be built: %v", err)
	}
	s.process, err = rig.Start([]string{path, "--quiet", "--keep-alive", "--port", s.address, "--region", region, "posix", s.dir},
		[]string{"ROOT_ACCESS_KEY=" + accessKey, "ROOT_SECRET_KEY=" + secretKey, "HOME=" + s.dir}, nil)
	if err != nil {
		s.Fatal(err)
	}
	rig.Until(ctx, s, "versitygw listens", func() bool {
		select {
		case <-s.process.Gone:
			s.Fatalf("versitygw has ended: %s", s.process.State)
		default:
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// entry returns a store at the server, without a link between them.
func (s *server) entry(prefix string) entry {
	return entry{
		URL:         fmt.Sprintf("s3://%s?endpoint=http://%s&region=%s&use_path_style=true", bucket, s.address, region),
		Prefix:      prefix,
		AccessKeyID: accessKey, SecretAccessKey: secretKey,
	}
}

// stop kills the server, so that connections to it are refused.
func (s *server) stop() {
	s.process.Signal(syscall.SIGKILL)
	<-s.process.Gone
	s.process = nil
}

// objects returns the sizes of the visible objects by key.
func (s *server) objects(ctx context.Context) map[string]int64 {
	s.Helper()
	sizes := make(map[string]int64)
	for pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: aws.String(bucket)}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			s.Fatal(err)
		}
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
	return digestOf(s.T, object.Body)
}

// unfinished returns the keys of the multipart uploads that were neither completed nor aborted.
func (s *server) unfinished(ctx context.Context) []string {
	s.Helper()
	var keys []string
	for pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: aws.String(bucket)}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			s.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	return sizes
}

func (d directory) digest(t *testing.T, key string) string {
	t.Helper()
	file, err := os.Open(filepath.Join(string(d), key))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return digestOf(t, file)
}

func digestOf(t *testing.T, r io.Reader) string {
	t.Helper()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
