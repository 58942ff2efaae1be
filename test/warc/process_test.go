//go:build linux

package warc

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os/exec"
	"testing"
	"time"

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

// entry is a store in the file of --stores-file.
type entry struct {
	URL          string `yaml:"url"`
	MaxFileBytes int64  `yaml:"max-file-bytes,omitempty"`
}

// service is one fetchd.
type service struct {
	*testing.T
	*rig.Fetchd
	client *client.Client
}

// start runs a fetchd with the store archive until the test ends. args are further flags.
func start(ctx context.Context, t *testing.T, archive entry, args ...string) *service {
	t.Helper()
	f := rig.StartFetchd(ctx, t, rig.FetchdOptions{Args: append(args, "--egress-allow-cidr", "127.0.0.0/8", "--stores-file", rig.StoresFile(t, map[string]entry{"archive": archive}))})
	return &service{t, f, client.New(rig.Dial(t, f.GRPC, client.DialOptions()...))}
}

// request returns a request that is recorded.
func request(url string) *pb.FetchRequest {
	return &pb.FetchRequest{
		Url:           url,
		RecordPolicy:  &pb.RecordPolicy{Store: "archive"},
		BodyPolicy:    &pb.BodyPolicy{Delivery: &pb.BodyPolicy_None{None: new(pb.NoDelivery)}},
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
