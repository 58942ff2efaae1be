//go:build linux

package warc

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most tests wait
		panic(err)
	}
	rig.Main(m, "fetchd", "fetchctl", "frontier")
}

// pick returns the value for the form that was requested.
func pick[T any](gate, long T) T {
	if os.Getenv("FETCHD_WARC") == "all" {
		return long
	}
	return gate
}

// entry is a store in the file of --stores-file.
type entry struct {
	URL             string   `yaml:"url"`
	SpoolDir        string   `yaml:"spool-dir,omitempty"`
	MaxFileBytes    int64    `yaml:"max-file-bytes,omitempty"`
	MaxFileAge      string   `yaml:"max-file-age,omitempty"`
	Redact          []string `yaml:"redact,omitempty"`
	AccessKeyID     string   `yaml:"access-key-id,omitempty"`
	SecretAccessKey string   `yaml:"secret-access-key,omitempty"`
}

// storesFile writes the file of --stores-file, with one store: archive.
func storesFile(t *testing.T, e entry) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"stores": map[string]entry{"archive": e}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stores.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// service is one fetchd.
type service struct {
	*testing.T
	*rig.Process
	address string
	client  *client.Client
	log     rig.Log
}

// start runs a fetchd with the store archive until the test ends. args are further flags.
func start(ctx context.Context, t *testing.T, archive entry, args ...string) *service {
	t.Helper()
	s := &service{T: t}
	args = append([]string{rig.Program("fetchd"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "",
		"--egress-allow-cidr", "127.0.0.0/8", "--stores-file", storesFile(t, archive)}, args...)
	var err error
	s.Process, err = rig.Start(args, nil, s.log.Add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	at, err := s.Serving(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log.String())
	}
	s.address = at.GRPC
	s.client = client.New(rig.Dial(t, at.GRPC, client.DialOptions()...))
	return s
}

// request returns a request that is recorded.
func request(url string) *pb.FetchRequest {
	return &pb.FetchRequest{
		Url:           url,
		Record:        &pb.RecordPolicy{Store: "archive"},
		BodyPolicy:    &pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_NONE},
		RetryPolicy:   &pb.RetryPolicy{BaseDelay: durationpb.New(time.Millisecond), MaxDelay: durationpb.New(10 * time.Millisecond)},
		TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: durationpb.New(30 * time.Second)},
	}
}

// run runs a program to its end, and returns standard output and standard error.
func run(ctx context.Context, t *testing.T, program string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	err = cmd.Run()
	return out.String(), failed.String(), err
}

// portOf returns the port of an address.
func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
