package stores_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"go.uber.org/goleak"

	"fetchd/internal/budget"
	"fetchd/stores"
	"fetchd/test/need"
	"fetchd/test/rig"
)

const (
	keyID  = "AKIDEXAMPLE"
	secret = "a-secret-of-the-tests"
	part   = 5 << 20
)

// gateway is the versitygw that the tests of this package share. Each test has its own bucket.
var gateway struct {
	once    sync.Once
	address string
	why     error
	dir     string
	process *exec.Cmd
	buckets atomic.Int64
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if gateway.process != nil {
			_ = gateway.process.Process.Kill()
			_ = gateway.process.Wait()
			_ = os.RemoveAll(gateway.dir)
		}
		os.Exit(code) //nolint:forbidigo // TestMain calls it
	}))
}

func startGateway(t testing.TB, program string) (err error) {
	gateway.address = rig.FreeAddress(t, "127.0.0.1")
	if gateway.dir, err = os.MkdirTemp("", "fetchd-stores"); err != nil {
		return err
	}
	data := filepath.Join(gateway.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(gateway.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, "--port", gateway.address, "--region", "us-east-1", "posix", data)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + keyID, "ROOT_SECRET_KEY=" + secret}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	gateway.process = cmd
	for range 600 {
		conn, err := net.Dial("tcp", gateway.address)
		if err == nil {
			conn.Close()
			return nil
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // another process starts
	}
	return errors.New("versitygw does not listen")
}

// s3Bucket is a bucket of the gateway.
type s3Bucket struct {
	testing.TB
	name   string
	client *s3.Client
}

// in returns b for a subtest.
func (b *s3Bucket) in(t testing.TB) *s3Bucket {
	c := *b
	c.TB = t
	return &c
}

func newBucket(t testing.TB) *s3Bucket {
	t.Helper()
	program := need.Tool(t, "versitygw")
	gateway.once.Do(func() { gateway.why = startGateway(t, program) })
	if gateway.why != nil {
		t.Fatal(gateway.why)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b := &s3Bucket{TB: t, name: fmt.Sprintf("bucket-%d", gateway.buckets.Add(1)), client: s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + gateway.address), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(keyID, secret, ""), HTTPClient: &http.Client{Transport: transport},
	})}
	if _, err := b.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &b.name}); err != nil {
		t.Fatal(err)
	}
	return b
}

// url returns the URL of the bucket at an endpoint; empty is the gateway.
func (b *s3Bucket) url(endpoint string) string {
	if endpoint == "" {
		endpoint = "http://" + gateway.address
	}
	return "s3://" + b.name + "?region=us-east-1&use_path_style=true&endpoint=" + endpoint
}

// open opens a store and closes it when the test ends.
func open(t testing.TB, c stores.Config) *stores.Store {
	t.Helper()
	if strings.HasPrefix(c.URL, "s3:") && c.AccessKeyID == "" {
		c.AccessKeyID, c.SecretAccessKey = keyID, secret
	}
	s, err := stores.Open("archive", c)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close = %v, with %+v", err, s.Stats())
		}
		if n := s.Stats().InFlight; n != 0 {
			t.Errorf("%d uploads are in flight after Close", n)
		}
	})
	return s
}

// want checks that the bucket has an object, and no other.
func (b *s3Bucket) want(key string, body []byte) *s3.GetObjectOutput {
	b.Helper()
	out, err := b.client.GetObject(b.Context(), &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		b.Fatalf("get %s: %v", key, err)
	}
	defer out.Body.Close()
	got, err := io.ReadAll(out.Body)
	if err != nil || !bytes.Equal(got, body) {
		b.Errorf("%s has %d bytes, %v, want %d other ones", key, len(got), err, len(body))
	}
	return out
}

// wantNone checks that no object below the prefix is visible.
func (b *s3Bucket) wantNone(prefix string) {
	b.Helper()
	out, err := b.client.ListObjectsV2(context.Background(), &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix})
	must(b, err)
	for _, o := range out.Contents {
		b.Errorf("the bucket has %s with %d bytes, want nothing", *o.Key, *o.Size)
	}
}

// unfinished returns the number of multipart uploads below the prefix.
func (b *s3Bucket) unfinished(prefix string) int {
	b.Helper()
	out, err := b.client.ListMultipartUploads(context.Background(), &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: &prefix})
	must(b, err)
	return len(out.Uploads)
}

func digest[T string | []byte](body T) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// random returns bytes in which no part equals another.
func random(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = source.Read(b)
	return b
}

// upload writes a body in chunks and commits it.
func upload(ctx context.Context, s *stores.Store, o stores.Object, body []byte, chunk int) (stores.Stored, error) {
	u, err := s.Begin(ctx, o)
	if err != nil {
		return stores.Stored{}, err
	}
	defer u.Abort()
	for rest := body; len(rest) > 0; {
		n, err := u.Write(rest[:min(chunk, len(rest))])
		if err != nil {
			return stores.Stored{}, err
		}
		rest = rest[n:]
	}
	return u.Commit(digest(body))
}

// TestS3 checks that objects of all sizes can be read back, and that nothing else is left.
func TestS3(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	memory := budget.New(1 << 30)
	s := open(t, stores.Config{URL: b.url(""), Prefix: "crawl/2026"})
	for _, row := range []struct {
		name  string
		size  int
		chunk int
		parts int // in the ETag
	}{
		{"empty", 0, 1, 0},
		{"one byte", 1, 1, 0},
		{"one piece", 64 << 10, 32 << 10, 0},
		{"a part less one byte", part - 1, 32 << 10, 0},
		{"a part", part, 32 << 10, 0},
		{"a part and a byte", part + 1, 32 << 10, 2},
		{"two parts", 2 * part, 1 << 20, 2},
		{"odd chunks", 3*part - 7, 99_991, 3},
		{"one chunk", 3*part + 1, 1 << 30, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			body := random(row.size)
			lease := memory.Lease("caller")
			defer lease.Close()
			for _, size := range []int{-1, row.size} {
				key := fmt.Sprintf("%s/%d é+%%", row.name, size)
				got, err := upload(t.Context(), s, stores.Object{Key: key, Size: int64(size), ContentType: "text/html; charset=utf-8", Memory: lease}, body, row.chunk)
				must(t, err)
				out := b.want("crawl/2026/"+key, body)
				if got.Key != key || got.Size != int64(row.size) || got.SHA256 != digest(body) || got.ETag != aws.ToString(out.ETag) {
					t.Errorf("Commit = %+v, want the ETag %s", got, aws.ToString(out.ETag))
				}
				if suffix := fmt.Sprintf("-%d\"", row.parts); row.parts > 0 && !strings.HasSuffix(got.ETag, suffix) || row.parts == 0 && strings.Contains(got.ETag, "-") {
					t.Errorf("the ETag is %s, want %d parts", got.ETag, row.parts)
				}
				if aws.ToString(out.ContentType) != "text/html; charset=utf-8" {
					t.Errorf("the type is %q", aws.ToString(out.ContentType))
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := b.unfinished(""); n != 0 {
			t.Errorf("%d multipart uploads are left", n)
		}
		if used := memory.Usage().Total(); used != 0 {
			t.Errorf("%d bytes are still charged", used)
		}
	})
}

// TestS3Keys checks that odd keys are sent as they are, and that keys that the bucket rejects do not
// close the store to others.
func TestS3Keys(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	s := open(t, stores.Config{URL: b.url(""), Prefix: "p"})
	for _, key := range []string{"a%2fb", "..a/b..", "a?b=c&d=e#f", "a+b c", "  a  b ", "\"'<>&", "a;b:c@d,e!$(*)[]{}|^`~", "é/日本/🙂", "a%", "a%zz", "...", "a=b"} {
		body := []byte(key)
		if _, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, body, 4); err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		b.want("p/"+key, body)
	}
	for range 5 {
		for _, key := range []string{"a%2fb/below", "é"} { // versitygw keeps objects in files
			if _, err := upload(t.Context(), s, stores.Object{Key: key, Size: -1}, nil, 1); err == nil {
				t.Logf("%q is possible", key)
			}
		}
	}
	if err := s.Ready(); err != nil {
		t.Errorf("Ready = %v: a caller closed the store to others", err)
	}
}
