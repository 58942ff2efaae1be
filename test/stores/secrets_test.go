//go:build linux

package stores

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// TestSecrets looks for the secret key in everything that fetchd says, and for requests that
// use other credentials than those of the stores file.
func TestSecrets(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 2*time.Minute)
	o, s := newSite(t), newServer(ctx, t)
	const wrong = "another-secret-key-of-the-tests-81b3d"
	env, asked := foreignCredentials(t)
	refused := s.entry("wrong") // the environment and the profile have the right key
	refused.SecretAccessKey = wrong
	nowhere := s.entry("nowhere")
	nowhere.URL = strings.Replace(nowhere.URL, s.Address, rig.FreeAddress(t, "127.0.0.1"), 1)
	missing := s.entry("missing")
	missing.URL = strings.Replace(missing.URL, bucket, "no-such-bucket", 1)
	stores := map[string]entry{"right": s.entry("right"), "wrong": refused, "nowhere": nowhere, "missing": missing}
	path := rig.StoresFile(t, stores)
	p := start(ctx, t, o.Origin, path, rig.FetchdOptions{Env: env, Args: []string{"--log-level", "debug"}})

	var said strings.Builder
	b := body{15 << 20, 8}
	for store, code := range map[string]string{"right": "", "wrong": "SignatureDoesNotMatch", "nowhere": "refused", "missing": "NoSuchBucket"} {
		for i, change := range []func(*pb.FetchRequest){func(*pb.FetchRequest) {}, func(r *pb.FetchRequest) { r.TimeoutPolicy.TotalTimeout = durationpb.New(time.Millisecond) }} {
			r := request(o.URL("http", "/s/"+store+"/"+b.step()), store, "body")
			change(r)
			out, err := p.fetch(ctx, r)
			said.WriteString(protojson.Format(out) + fmt.Sprint(err) + "\n")
			if i > 0 {
				continue
			}
			if store == "right" {
				o.wantStored(t, out, err, store, "body", b)
			} else if e := out.GetError(); e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_STORE_FAILURE || !strings.Contains(e.GetDetail(), code) {
				t.Errorf("%s: %s, want STORE_FAILURE with %s", store, describe(out, err), code)
			}
			stream, err := p.client.Fetch(ctx, r)
			for err == nil {
				var m *pb.FetchResponse
				if m, err = stream.Recv(); err == nil {
					said.WriteString(protojson.Format(m) + "\n")
				}
			}
			said.WriteString(fmt.Sprint(err) + "\n")
		}
	}
	for _, page := range []string{"/metrics", "/healthz", "/openapi.json"} {
		said.WriteString(get(ctx, t, "http://"+p.HTTP+page))
	}
	config, err := rig.Start([]string{rig.Program("fetchd"), "config", "--stores-file", path}, env, func(line []byte) { said.Write(line) })
	must.Succeed(t, err)
	<-config.Gone
	p.Stop()
	said.WriteString(p.Logged.String())
	if said.Len() < 10_000 || !strings.Contains(p.Logged.String(), `"level":"DEBUG"`) && !strings.Contains(p.Logged.String(), "fetch finished") {
		t.Errorf("fetchd said only %d bytes, the log is\n%.1000s", said.Len(), p.Logged.String())
	}
	wantNoSecret(t, said.String(), rig.BucketSecret, wrong)
	t.Logf("no secret in %d bytes of outcomes, events, metrics and log; %d requests to a metadata service or another endpoint", said.Len(), asked.Load())
}

// foreignCredentials returns an environment with every other source of credentials that the AWS SDK
// knows, and the number of requests to the servers that it names.
func foreignCredentials(t *testing.T) (env []string, asked *atomic.Int64) {
	t.Helper()
	// A metadata service, a token service and another endpoint, which must not be asked.
	asked = new(atomic.Int64)
	trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		t.Errorf("fetchd asked %s %s", r.Method, r.URL)
	}))
	t.Cleanup(trap.Close)
	home := t.TempDir()
	profile := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", rig.BucketKeyID, rig.BucketSecret)
	for name, text := range map[string]string{"credentials": profile, "config": "[default]\nregion = eu-north-1\nendpoint_url = " + trap.URL + "\n"} {
		must.Succeed(t, os.MkdirAll(filepath.Join(home, ".aws"), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(home, ".aws", name), []byte(text), 0o600))
	}
	return []string{
		"HOME=" + home, "AWS_PROFILE=default", "AWS_ACCESS_KEY_ID=" + rig.BucketKeyID, "AWS_SECRET_ACCESS_KEY=" + rig.BucketSecret,
		"AWS_REGION=eu-north-1", "AWS_ENDPOINT_URL=" + trap.URL, "AWS_ENDPOINT_URL_S3=" + trap.URL,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + trap.URL, "AWS_CONTAINER_CREDENTIALS_FULL_URI=" + trap.URL + "/get-credentials",
	}, asked
}

// wantNoSecret looks for secrets and signatures in a text.
func wantNoSecret(t *testing.T, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		for _, form := range append(signatures.Forms([]byte(secret)), secret[:20]) {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("the secret is in what fetchd says: …%s…", text[max(at-200, 0):min(at+100, len(text))])
			}
		}
	}
	if strings.Contains(text, "X-Amz-Signature") || strings.Contains(text, "AWS4-HMAC-SHA256") {
		t.Error("a signature is in what fetchd says")
	}
}

func get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	must.Succeed(t, err)
	resp, err := transport.RoundTrip(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return string(text)
}
