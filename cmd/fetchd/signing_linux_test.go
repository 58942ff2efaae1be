package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

// relay forwards connections to an address, and replaces bytes of what clients send.
func relay(t *testing.T, to, old, replacement string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = client.Close() }()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer func() { _ = server.Close() }()
				go func() {
					_, _ = io.Copy(client, server)
					_ = client.Close()
				}()
				buf := make([]byte, 64<<10)
				for {
					n, err := client.Read(buf)
					if _, failed := server.Write(bytes.ReplaceAll(buf[:n], []byte(old), []byte(replacement))); err != nil || failed != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// TestSignedForS3 checks that an S3 server accepts what is signed, and refuses it if one byte is changed
// after that or if the secret is another one.
func TestSignedForS3(t *testing.T) {
	t.Parallel()
	b := rig.NewBucket(t.Context(), t, "bucket")
	f := newFolder(t)
	right := f.write("aws", fmt.Appendf(nil, "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n[wrong]\naws_access_key_id = %s\naws_secret_access_key = hush\n",
		rig.BucketKeyID, rig.BucketSecret, rig.BucketKeyID))
	changes := map[string][2]string{"body": {"some text", "some tExt"}, "path": {"/bucket/a", "/bucket/b"}, "range": {"bytes=1-", "bytes=2-"},
		"time": {"X-Amz-Date: 2", "X-Amz-Date: 3"}, "query": {"max-keys=1", "max-keys=2"}}
	addresses := map[string]string{"": b.Address}
	for what, change := range changes {
		addresses[what] = relay(t, b.Address, change[0], change[1])
	}
	args := []string{"--egress-allow-cidr", "127.0.0.0/8", "--log-level", "debug"}
	var all strings.Builder
	for _, address := range addresses {
		fmt.Fprintf(&all, "'http://%s', ", address)
		args = append(args, "--egress-allow-port", fmt.Sprint(netip.MustParseAddrPort(address).Port()))
	}
	const provider = "  %s: {origins: [%s], aws-sigv4: {region: us-east-1, service: s3, credentials-file: %q, profile: %s}}\n"
	origins := "providers:\n" + fmt.Sprintf(provider, "right", all.String(), right, "default") + fmt.Sprintf(provider, "wrong", all.String(), right, "wrong")
	s := start(t, append(args, "--origins-file", f.write("origins.yaml", []byte(origins)))...)
	call := s.dial(nil)
	for _, row := range []struct {
		name, method, path string
		body               string
		header             string // NAME: VALUE
		provider           string // empty: right
		changed            string
		status             int32
		want               string // the body
	}{
		{name: "PUT", method: "PUT", path: "/bucket/a.txt", body: "some text", status: 200},
		{name: "GET", path: "/bucket/a.txt", status: 200, want: "some text"},
		{name: "HEAD", method: "HEAD", path: "/bucket/a.txt", status: 200},
		{name: "a range", path: "/bucket/a.txt", header: "Range: bytes=5-7", status: 206, want: "tex"},
		{name: "PUT with a type", method: "PUT", path: "/bucket/t", body: "<p>", header: "Content-Type: text/html", status: 200},
		{name: "PUT of an empty object", method: "PUT", path: "/bucket/empty", status: 200},
		{name: "PUT of odd names", method: "PUT", path: "/bucket/a%20b+c(1)!'*,:=@$&;~%25%C3%A9/x", body: "odd", status: 200},
		{name: "GET of odd names", path: "/bucket/a%20b+c(1)!'*,:=@$&;~%25%C3%A9/x", status: 200, want: "odd"},
		{name: "GET of odd names, escaped", path: "/bucket/a%20b%2Bc%281%29%21%27%2A%2C%3A%3D%40%24%26%3B%7E%25%C3%A9/x", status: 200, want: "odd"},
		{name: "a query", path: "/bucket?list-type=2&max-keys=1&prefix=a%20b%2B", status: 200, want: "a b+c(1)"},
		{name: "a query without a value", path: "/bucket?location", status: 200},
		{name: "a header of S3", method: "PUT", path: "/bucket/m", body: "x", header: "X-Amz-Meta-Colour:  red ", status: 200},
		{name: "no such object", path: "/bucket/none", status: 404},
		{name: "DELETE", method: "DELETE", path: "/bucket/m", status: 204},

		{name: "no signature", provider: "none", path: "/bucket/a.txt", status: 403},
		{name: "another secret", provider: "wrong", path: "/bucket/a.txt", status: 403},
		{name: "a relay that changes nothing", path: "/bucket/a.txt", changed: "body", status: 200, want: "some text"},
		{name: "another body", method: "PUT", path: "/bucket/a.txt", body: "some text", changed: "body", status: 400},
		{name: "another path", path: "/bucket/a.txt", changed: "path", status: 403},
		{name: "another range", path: "/bucket/a.txt", header: "Range: bytes=1-", changed: "range", status: 403},
		{name: "another time", path: "/bucket/a.txt", changed: "time", status: 403},
		{name: "another query", path: "/bucket?max-keys=1", changed: "query", status: 403},
	} {
		in := &pb.FetchRequest{Url: "http://" + addresses[row.changed] + row.path, Method: row.method, Body: []byte(row.body), AuthProvider: row.provider}
		switch row.provider {
		case "":
			in.AuthProvider = "right"
		case "none":
			in.AuthProvider = ""
		}
		if name, value, ok := strings.Cut(row.header, ":"); ok {
			in.Headers = []*pb.Header{{Name: name, Value: value}}
		}
		out, err := call.FetchUnary(t.Context(), in)
		must(t, err)
		if got := out.GetOutcome(); got.GetResponse().GetStatusCode() != row.status || !strings.Contains(string(got.GetInlineBody()), row.want) {
			t.Errorf("%s: %v", row.name, got)
		}
		if text := fmt.Sprint(out); strings.Contains(text, "Signature=") || strings.Contains(text, rig.BucketSecret) {
			t.Errorf("%s: a signature or a secret is in the answer: %s", row.name, text)
		}
	}
	for _, secret := range []string{rig.BucketSecret, rig.BucketKeyID, "Signature=", "hush"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}
