package main

import (
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// received is a request with its body.
type received struct {
	http.Header
	body []byte
}

// mac is the signature of a text with a key, by the standard library alone.
func mac(key, text string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return h.Sum(nil)
}

// schemes are the providers in docs/signing.md, each with its key file and the check that a receiver makes.
var schemes = map[string]struct {
	key    string
	accept func(r *received) bool
}{
	"standard-webhooks": {"whsec_aHVzaC1rZXktb2Ytd2ViaG9va3M=", func(r *received) bool {
		want := "v1," + base64.StdEncoding.EncodeToString(mac("hush-key-of-webhooks", r.Get("Webhook-Id")+"."+r.Get("Webhook-Timestamp")+"."+string(r.body)))
		return r.Get("Webhook-Id") != "" && r.Get("Webhook-Signature") == want
	}},
	"github": {"hush-key-of-github\n", func(r *received) bool {
		return r.Get("X-Hub-Signature-256") == "sha256="+hex.EncodeToString(mac("hush-key-of-github", string(r.body)))
	}},
	"slack": {"hush-key-of-slack", func(r *received) bool {
		return r.Get("X-Slack-Signature") == "v0="+hex.EncodeToString(mac("hush-key-of-slack", "v0:"+r.Get("X-Slack-Request-Timestamp")+":"+string(r.body)))
	}},
	"stripe": {"whsec_hush-key-of-stripe", func(r *received) bool {
		stamp, signature, _ := strings.Cut(strings.TrimPrefix(r.Get("Stripe-Signature"), "t="), ",v1=")
		return signature == hex.EncodeToString(mac("whsec_hush-key-of-stripe", stamp+"."+string(r.body)))
	}},
}

// pageOfSigning returns a file of origins in docs/signing.md, the first or the second, with keys in f, and with origin
// for all its origins.
func pageOfSigning(f *folder, number int, origin string) string {
	page, err := os.ReadFile("../../docs/signing.md")
	must(f, err)
	text := string(regexp.MustCompile("(?s)```yaml\nproviders:\n(.*?)```").FindAllSubmatch(page, -1)[number-1][1])
	f.write("aws-credentials", []byte("[default]\naws_access_key_id=A\naws_secret_access_key=hush\n"))
	for name, scheme := range schemes {
		f.write(name+"-key", []byte(scheme.key))
	}
	text = strings.ReplaceAll(text, "/etc/fetchd/", filepath.Dir(f.write("origins.yaml", nil))+"/")
	return f.write("origins.yaml", []byte("providers:\n"+regexp.MustCompile(`https://[a-z0-9.-]+\.(example|amazonaws)\.com`).ReplaceAllString(text, origin)))
}

// recordsIn returns what the WARC files in a folder contain.
func recordsIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	must(t, err)
	var all strings.Builder
	for _, name := range files {
		raw, err := os.Open(name)
		must(t, err)
		unzipped, err := gzip.NewReader(raw)
		must(t, err)
		_, err = io.Copy(&all, unzipped)
		must(t, errors.Join(err, raw.Close()))
	}
	return all.String()
}

// TestSigningPage sends requests with each provider of docs/signing.md, and checks them as a receiver does:
// the second attempt has the same id, and no key or signature is in the log, the metrics, the events or the records.
func TestSigningPage(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []*received
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		q := &received{r.Header, body}
		if got = append(got, q); len(got) == 1 || err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(origin.Close)
	f := newFolder(t)
	u, err := url.Parse(origin.URL)
	must(t, err)
	s := start(t, "--origins-file", pageOfSigning(f, 1, origin.URL), "--stores-file", f.write("stores.yaml", []byte("stores:\n  a: {url: 'warc+file://"+f.dir+"/a'}\n")), "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", u.Port(), "--log-level", "debug")
	call := s.dial(nil)
	secrets := []string{"hush", "aHVzaC1rZXktb2Ytd2ViaG9va3M"}
	var said strings.Builder
	for name, scheme := range schemes {
		got = nil
		in := &pb.FetchRequest{Url: origin.URL + "/hook?a=1", Method: "PUT", Body: []byte(`{"event": "` + name + `"}`), AuthProvider: name,
			RecordPolicy: &pb.RecordPolicy{Store: "a"}, EventLevel: pb.EventLevel_EVENT_LEVEL_ALL}
		stream, err := call.Fetch(t.Context(), in)
		must(t, err)
		for err == nil {
			var m *pb.FetchResponse
			m, err = stream.Recv()
			fmt.Fprintf(&said, "%s: %v\n", name, m)
		}
		if !errors.Is(err, io.EOF) || len(got) != 2 {
			t.Fatalf("%s: %v after %d requests: %s", name, err, len(got), &said)
		}
		for i, q := range got {
			if !scheme.accept(q) || string(q.body) != string(in.GetBody()) {
				t.Errorf("%s: request %d is not accepted: %v %s", name, i, q.Header, q.body)
			}
			q.body[0]++
			if scheme.accept(q) {
				t.Errorf("%s: a changed byte is accepted", name)
			}
			for _, field := range []string{"Webhook-Signature", "X-Hub-Signature-256", "X-Slack-Signature", "Stripe-Signature"} {
				secrets = append(secrets, q.Header[field]...)
			}
		}
		if id := "Webhook-Id"; got[0].Get(id) != got[1].Get(id) {
			t.Errorf("%s: ids %q and %q", name, got[0].Get(id), got[1].Get(id))
		}
	}
	_, err = call.FetchUnary(t.Context(), &pb.FetchRequest{Url: origin.URL, AuthProvider: "slack", Headers: []*pb.Header{{Name: "x-slack-signature", Value: "x"}}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request with the field of the signature: %v", err)
	}
	_, metrics, err := ask(t.Context(), nil, s.http, "/metrics", "")
	must(t, err)
	s.stop()
	records := recordsIn(t, filepath.Join(f.dir, "a"))
	if n := strings.Count(records, "WARC-Type: request"); n != 2*len(schemes) || !strings.Contains(records, "Webhook-Id: ") {
		t.Errorf("%d requests are recorded, want %d", n, 2*len(schemes))
	}
	if len(secrets) != 2+2*len(schemes) {
		t.Errorf("%d secrets of %d schemes", len(secrets), len(schemes))
	}
	for _, secret := range secrets {
		if strings.Contains(s.log.String()+metrics+said.String()+records, secret) {
			t.Errorf("%q is in the log, the metrics, an event or a record", secret)
		}
	}
}

// TestSigV4Variables checks that credentials come from the variables that the operator names, and from no others.
func TestSigV4Variables(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "API_ID", "API_SECRET", "API_TOKEN"} {
		t.Setenv(name, "hush-"+name)
	}
	t.Setenv("API_EMPTY", "")
	t.Setenv("API_KEY_ID", "id")
	if o, err := readOrigins(pageOfSigning(newFolder(t), 2, "https://api.example"), new(origins)); err != nil || len(o.providers) != 2 {
		t.Errorf("the page: %v", err)
	}
	for _, row := range []struct{ name, keys, fault string }{
		{"named", "access-key-id-env: API_ID, secret-access-key-env: API_SECRET, session-token-env: API_TOKEN", ""},
		{"those of the SDK, not named", "", "credentials-file: is missing"},
		{"no secret", "access-key-id-env: API_ID", "no secret access key"},
		{"an empty one", "access-key-id-env: API_ID, secret-access-key-env: API_EMPTY", "API_EMPTY is empty or not set"},
		{"one that is not set", "access-key-id-env: API_NONE, secret-access-key-env: API_SECRET", "API_NONE is empty or not set"},
		{"a file too", "access-key-id-env: API_ID, secret-access-key-env: API_SECRET, credentials-file: /etc/x", "credentials file"},
		{"a profile too", "access-key-id-env: API_ID, secret-access-key-env: API_SECRET, profile: x", "only with a file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := newFolder(t).write("origins.yaml", []byte("providers: {api: {origins: ['https://api.example'], aws-sigv4: {region: r, service: s, "+row.keys+"}}}"))
			o, err := readOrigins(file, new(origins))
			if (err == nil) != (row.fault == "") || !strings.Contains(fmt.Sprint(err), row.fault) || strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("%v, want an error with %q and without a secret", err, row.fault)
			}
			if text := fmt.Sprintf("%+v", o); row.fault == "" && strings.Contains(text, "hush") {
				t.Errorf("a secret is in %s", text)
			}
		})
	}
}
