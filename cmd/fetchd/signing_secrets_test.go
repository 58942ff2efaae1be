package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	"fetchd/fetch/auth/httpsig"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// keyed are the providers of TestSigningSecrets. Each signs what a caller keeps secret, too. Their keys are in files.
const keyed = `
  raw:
    origins: ORIGINS
    hmac: {key-file: DIR/raw, signs: "{id}.{timestamp}.{body}", fields: {webhook-id: "{id}", webhook-timestamp: "{timestamp}", webhook-signature: "v1,{signature}"}}
  base64:
    origins: ORIGINS
    hmac: {key-file: DIR/base64, key-encoding: whsec, encoding: base64, signs: "{id}.{timestamp}.{body}", fields: {webhook-id: "{id}", webhook-timestamp: "{timestamp}", webhook-signature: "{signature}"}}
  aws: {origins: ORIGINS, aws-sigv4: {region: us-east-1, service: s3, credentials-file: DIR/aws}}
  ed25519: {origins: ORIGINS, http-signature: {key-files: [DIR/ed25519], optional: [authorization, cookie]}}
  p256: {origins: ORIGINS, http-signature: {key-files: [DIR/p256], optional: [authorization, cookie]}}
  shared: {origins: ORIGINS, http-signature: {key-files: [DIR/shared], key-id: shared, optional: [authorization, cookie]}}
  bot: {origins: ["https://*", HTTP], http-signature: {key-files: [DIR/pem], profile: web-bot-auth, agent: "https://bot.example", optional: [authorization, cookie]}}
  unable: {origins: ORIGINS, http-signature: {key-files: [DIR/ed25519], components: ["@authority", x-none]}}
`

// secretKeys are the files of the keys of keyed, and the secrets in them.
func secretKeys(t *testing.T) (files map[string][]byte, secrets [][]byte) {
	t.Helper()
	text := func(name string) []byte { return []byte(name + " key that no one may see: \x01/+?") }
	files = map[string][]byte{"raw": text("raw"), "base64": []byte("whsec_" + base64.StdEncoding.EncodeToString(text("webhook"))),
		"shared": []byte(base64.StdEncoding.EncodeToString(text("shared"))), "pem": []byte(signatures.PEMEd25519),
		"aws": []byte("[default]\naws_access_key_id=AKIAIOSFODNN7EXAMPLE\naws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\naws_session_token=token-of-a-session-of-the-tests\n")}
	secrets = [][]byte{text("raw"), text("webhook"), text("shared"), []byte("AKIAIOSFODNN7EXAMPLE"), []byte("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), []byte("token-of-a-session-of-the-tests")}
	for name, algorithm := range map[string]string{"ed25519": httpsig.Ed25519, "p256": httpsig.ECDSAP256} {
		k, err := httpsig.NewKey(algorithm)
		must(t, err)
		files[name], err = k.JWK()
		must(t, err)
		var jwk struct{ D string }
		must(t, json.Unmarshal(files[name], &jwk))
		d, err := base64.RawURLEncoding.DecodeString(jwk.D)
		must(t, err)
		secrets = append(secrets, d)
	}
	return files, secrets
}

// addedTo returns the secrets in a request as the origin received it: the values of the fields that the provider added,
// and the texts that were signed, where their form is known here. The id of a fetch, the time and the agent are none.
func addedTo(q *origin.Request, body []byte) []string {
	var all []string
	for _, name := range []string{"Webhook-Signature", "Authorization", "X-Amz-Content-Sha256", "X-Amz-Date", "X-Amz-Security-Token", "Content-Digest", "Signature", "Signature-Input"} {
		if value := q.Header.Get(name); value != "" && value != "Bearer token-of-the-caller" {
			all = append(all, value)
		}
	}
	m := rig.Received(q, body)
	if input := m.Members("signature-input")["sig1"]; input != "" {
		base, err := m.Base(input)
		if err != nil {
			base = "the request lacks what is signed"
		}
		all = append(all, base, strings.Trim(m.Members("signature")["sig1"], ":"))
	}
	if id := q.Header.Get("Webhook-Id"); id != "" {
		all = append(all, id+"."+q.Header.Get("Webhook-Timestamp")+"."+string(body))
	}
	return all
}

// said is everything that a service says, by the place where it says it.
type said map[string]*strings.Builder

func (s said) add(where string, what ...any) {
	if s[where] == nil {
		s[where] = new(strings.Builder)
	}
	fmt.Fprintln(s[where], what...)
}

// fetch runs a fetch over gRPC and over HTTP.
func (s said) fetch(service *service, call pb.FetchServiceClient, in *pb.FetchRequest) {
	service.Helper()
	stream, err := call.Fetch(service.Context(), in)
	for err == nil {
		var m *pb.FetchResponse
		m, err = stream.Recv()
		s.add("events", protojson.Format(m))
	}
	s.add("errors", err)
	sent, err := protojson.Marshal(in)
	must(service, err)
	for _, path := range []string{"/v1/fetch", "/v1/fetch:unary"} {
		_, answer, err := ask(service.Context(), nil, service.http, path, string(sent))
		s.add("HTTP API", answer, err)
		if path == "/v1/fetch" {
			s.add(consoleFiles, string(sent)+"\n"+answer)
		}
	}
}

// consoleFiles is the place of what the console saves, and before that of what it receives.
const consoleFiles = "HAR files of the console"

// archives has the console make a HAR file of each fetch: its request, and the lines of events after it.
const archives = `
import { createInterface } from 'node:readline';
const { Fetch } = await import(process.argv[1] + 'model.js');
const { har } = await import(process.argv[1] + 'har.js');
let fetch, saved = 0;
const save = () => { if (fetch) console.log(JSON.stringify(har(fetch, '')), saved++); };
for await (const line of createInterface({ input: process.stdin })) {
  const message = line.trim() ? JSON.parse(line) : {};
  if (message.url) { save(); fetch = new Fetch(message); }
  for (const event of message.events ?? []) fetch.take(event);
}
save();`

// save replaces what the console received by its HAR files.
func (s said) save(t *testing.T) {
	t.Helper()
	node, dir := need.Program(t, "node", "nodejs"), t.TempDir()
	for _, folder := range []string{"../../server/console/page", "../../internal/webpage/shared"} {
		must(t, os.CopyFS(dir, os.DirFS(folder)))
	}
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600))
	cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", archives, "file://"+dir+"/")
	cmd.Stdin = strings.NewReader(s[consoleFiles].String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("har.js: %v\n%s", err, out[max(0, len(out)-2000):])
	}
	s[consoleFiles].Reset()
	s[consoleFiles].Write(out)
}

// search fails if one of some texts is in a place.
func (s said) search(t *testing.T, texts []string) {
	t.Helper()
	slices.Sort(texts)
	texts = slices.Compact(texts)
	for where, all := range s {
		text := all.String()
		t.Logf("%s: %d bytes", where, len(text))
		if len(text) < 300 {
			t.Errorf("%s are almost empty: %s", where, text)
		}
		if leak := signatures.Leaked(text); leak != "" || strings.Contains(text, "@signature-params") || strings.Contains(text, "AWS4") {
			t.Errorf("the key %q, or a signature base, is in the %s", leak, where)
		}
		for _, secret := range texts {
			if strings.Contains(text, secret) {
				t.Errorf("a secret is in the %s: %q", where, secret)
			}
		}
	}
	t.Logf("%d texts were searched for", len(texts))
}

// TestSigningSecrets looks for keys, added fields and signature bases in everything that a service says: its log at level debug,
// events at level ALL, errors, metrics, spans, WARC files, and the HAR files that the console makes of the events.
func TestSigningSecrets(t *testing.T) {
	t.Parallel()
	o, f := rig.Origin(t), newFolder(t)
	files, secrets := secretKeys(t)
	for name, text := range files {
		f.write(name, text)
	}
	listeners := []string{"http", "https", "http-other"}
	traces, collected := startCollector(t)
	text := "providers:" + strings.NewReplacer("DIR", f.dir, "HTTP]", strings.TrimSuffix(o.URL("http", "/"), "/")+"]",
		"ORIGINS", "["+strings.TrimSuffix(o.URL("http", "/"), "/")+", "+strings.TrimSuffix(o.URL("https", "/"), "/")+"]").Replace(keyed)
	args := append(rig.Reach(t, listeners, o), "--origins-file", f.write("origins.yaml", []byte(text)))
	s := start(t, append(slices.Clone(args), "--log-level", "debug", "--trace-endpoint", traces, "--trace-ratio", "1",
		"--stores-file", f.write("stores.yaml", []byte("stores: {a: {url: 'warc+file://"+f.dir+"/a'}}")))...)
	call := s.dial(nil)
	all := make(said)
	body := []byte("a body that is signed")
	for _, provider := range []string{"raw", "base64", "aws", "ed25519", "p256", "shared", "bot", "unable"} {
		for listener, scripts := range map[string][]string{
			"http":  {"503/200", "302:" + to(o.URL("http-other", "/s/KEYaway/503/200")), "401", "200:header=Accept-Signature%3Dx", "reset"},
			"https": {"307:to=%2Fs%2FKEY%2F503/200", "403", "cut"},
		} {
			for i, script := range scripts {
				key := fmt.Sprintf("%s-%s-%d", provider, listener, i)
				in := &pb.FetchRequest{Url: o.URL(listener, "/s/"+key+"/"+strings.ReplaceAll(script, "KEY", key)), Method: "PUT", Body: body, AuthProvider: provider,
					EventLevel: pb.EventLevel_EVENT_LEVEL_ALL, RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)},
					Headers: []*pb.Header{{Name: "Cookie", Value: "session=cookie-of-the-caller"}}}
				if provider != "aws" {
					in.Headers = append(in.Headers, &pb.Header{Name: "Authorization", Value: "Bearer token-of-the-caller"})
				}
				if i%2 == 0 {
					in.RecordPolicy = &pb.RecordPolicy{Store: "a"}
				}
				all.fetch(s, call, in)
			}
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/v1/descriptor", httpsig.DirectoryPath} {
		_, answer, err := ask(t.Context(), nil, s.http, path, "")
		must(t, err)
		all.add("pages", answer)
	}
	for name, text := range map[string][]byte{"ed25519": files["ed25519"][:len(files["ed25519"])-20], "p256": bytes.Replace(files["p256"], []byte(`"x": "`), []byte(`"x": "A`), 1), "shared": []byte("*" + string(files["shared"]))} {
		f.write(name, text)
		s.reload("not reloaded")
		_, err := readOrigins(f.path("origins.yaml"), new(origins))
		all.add("errors", err)
		f.write(name, files[name])
	}
	_, printed, log := command(t, append([]string{"config"}, args...)...)
	all.add("fetchd config", printed, log)
	s.stop()
	all.add("log", s.log.String())
	all.add("spans", collected.text.String())
	all.add("WARC files", recordsIn(t, filepath.Join(f.dir, "a")))

	var forms []string
	for _, secret := range secrets {
		for _, form := range signatures.Forms(secret) {
			forms = append(forms, form[:12]) // a part may be quoted
		}
	}
	signed := 0
	for _, q := range o.AllRequests() {
		var sent []byte
		if q.BodyBytes > 0 {
			sent = body
		}
		added := addedTo(&q, sent)
		for _, text := range added {
			quoted := strings.Trim(strconv.Quote(text), `"`)
			forms = append(forms, text, quoted, strings.Trim(strconv.Quote(quoted), `"`)) // JSON in a text of JSON, too
		}
		if len(added) > 0 {
			signed++
		}
	}
	t.Run("HAR", func(t *testing.T) { all.save(t) }) // without Node the events stay, which are all that the page receives
	if signed < 150 || len(all) != 9 || all[consoleFiles].Len() < 50_000 {
		t.Errorf("%d signed requests, %d places", signed, len(all))
	}
	all.search(t, forms)
}

// spans is a collector of traces that keeps what it gets.
type spans struct {
	collector.UnimplementedTraceServiceServer
	text output
}

// Export implements the collector's service.
func (s *spans) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	_, err := io.WriteString(&s.text, in.String())
	return new(collector.ExportTraceServiceResponse), err
}

// startCollector starts a collector of traces, and returns its address.
func startCollector(t *testing.T) (address string, s *spans) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer()
	s = new(spans)
	collector.RegisterTraceServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		must(t, <-served)
	})
	return l.Addr().String(), s
}

// to returns a URL as the argument of a step of the origin.
func to(url string) string {
	return "to=" + strings.NewReplacer("%", "%25", ":", "%3A", "/", "%2F", ",", "%2C", "=", "%3D", "@", "%40").Replace(url)
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
