package stores_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	"fetchd/stores"
)

// TestOpenRefuses checks that the error names what is wrong and what to do, and has no secret.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	s3 := s3Config()
	for _, row := range []struct {
		name   string
		change func(*stores.Config)
		want   string
	}{
		{"no URL", func(c *stores.Config) { c.URL = "" }, "file:///DIR"},
		{"not a URL", func(c *stores.Config) { c.URL = "s3://%zz hunter2" }, "cannot be parsed"},
		{"another scheme", func(c *stores.Config) { c.URL = "gs://bucket" }, `"gs"`},
		{"a path", func(c *stores.Config) { c.URL = "/var/lib" }, "file:///DIR"},
		{"credentials in the URL", func(c *stores.Config) { c.URL = "s3://id:hunter2@bucket?region=a" }, "access-key-id"},
		{"access key in the URL", func(c *stores.Config) { c.URL = "s3://bucket?region=a&access_key=hunter2" }, "access-key-id"},
		{"profile", func(c *stores.Config) { c.URL = "s3://bucket?region=a&profile=hunter2" }, `"profile"`},
		{"no region", func(c *stores.Config) { c.URL = "s3://bucket" }, "region"},
		{"an odd region", func(c *stores.Config) { c.URL = "s3://bucket?region=a.b/c" }, "region"},
		{"region twice", func(c *stores.Config) { c.URL = "s3://bucket?region=a&region=b" }, "more than once"},
		{"style", func(c *stores.Config) { c.URL = "s3://bucket?region=a&use_path_style=1" }, "use_path_style"},
		{"bad escapes", func(c *stores.Config) { c.URL = "s3://bucket?region=%zz" }, "parameters"},
		{"a prefix in the URL", func(c *stores.Config) { c.URL = "s3://bucket/crawl?region=a" }, "prefix"},
		{"no bucket", func(c *stores.Config) { c.URL = "s3://?region=a" }, "bucket"},
		{"an ARN", func(c *stores.Config) { c.URL = "s3://arn:aws?region=a" }, ""},
		{"endpoint without a scheme", func(c *stores.Config) { c.URL = "s3://bucket?region=a&endpoint=host:9000" }, "endpoint"},
		{"endpoint with credentials", func(c *stores.Config) { c.URL = "s3://bucket?region=a&endpoint=https://id:hunter2@host" }, "endpoint"},
		{"endpoint with a path", func(c *stores.Config) { c.URL = "s3://bucket?region=a&endpoint=https://host/a" }, "endpoint"},
		{"endpoint with a query", func(c *stores.Config) { c.URL = "s3://bucket?region=a&endpoint=https://host%3Fhunter2" }, "endpoint"},
		{"fragment", func(c *stores.Config) { c.URL += "#a" }, "fragment"},
		{"no credentials", func(c *stores.Config) { c.AccessKeyID, c.SecretAccessKey = "", "" }, "access-key-id"},
		{"no key ID", func(c *stores.Config) { c.AccessKeyID = "" }, "access-key-id"},
		{"no secret", func(c *stores.Config) { c.SecretAccessKey = "" }, "secret-access-key"},
		{"line feed in the secret", func(c *stores.Config) { c.SecretAccessKey = "hunter2\n" }, "credential"},
		{"line feed in the token", func(c *stores.Config) { c.SessionToken = "hunter2\n" }, "credential"},
		{"prefix with dots", func(c *stores.Config) { c.Prefix = "a/../b" }, "prefix"},
		{"prefix at the root", func(c *stores.Config) { c.Prefix = "/a" }, "prefix"},
		{"prefix in .incoming", func(c *stores.Config) { c.Prefix = ".incoming/" }, "prefix"},
		{"a long prefix", func(c *stores.Config) { c.Prefix = strings.Repeat("a/", 256) + "a" }, "at most 512"},
		{"negative size", func(c *stores.Config) { c.MaxObjectBytes = -1 }, "-1"},
		{"a directory with credentials", func(c *stores.Config) { c.URL = "file:///nowhere" }, "no credentials"},
		{"a directory with a host", func(c *stores.Config) { *c = stores.Config{URL: "file://host/a"} }, "host"},
		{"a relative directory", func(c *stores.Config) { *c = stores.Config{URL: "file:a"} }, "file:///DIR"},
		{"a directory with parameters", func(c *stores.Config) { *c = stores.Config{URL: "file:///a?metadata=skip"} }, "parameters"},
		{"a directory in a file", func(c *stores.Config) { *c = stores.Config{URL: "file://" + file + "/a"} }, file},
	} {
		c := s3
		row.change(&c)
		s, err := stores.Open("archive", c)
		if err == nil {
			s.Close(t.Context())
		}
		text := fmt.Sprint(err)
		if err == nil || !strings.Contains(text, row.want) || strings.Contains(text, "hunter2") || !strings.Contains(text, "store archive") {
			t.Errorf("%s: Open = %v, want an error with %q and no secret", row.name, err, row.want)
		}
	}
	for _, url := range []string{"s3://bucket?region=us-east-1", "s3://bucket/?region=eu-central-1&use_path_style=false", "s3://my.bucket-1?region=a&endpoint=http://[::1]:9000/"} {
		c := s3
		c.URL = url
		open(t, c)
	}
}

// TestNoEnvironment checks that a store uses what its configuration says, and nothing that the SDK
// would find by itself: no environment, no profile, no metadata service, no proxy.
func TestNoEnvironment(t *testing.T) {
	var touched atomic.Int32
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { touched.Add(1) }))
	defer trap.Close()
	profile := filepath.Join(t.TempDir(), "profile")
	text := "[default]\naws_access_key_id = FROMPROFILE\naws_secret_access_key = p\nregion = eu-west-9\nendpoint_url = " + trap.URL + "\n"
	must(t, os.WriteFile(profile, []byte(text+strings.Replace(text, "default", "other", 1)), 0o600))
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "FROMENVIRONMENT", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "FROMENVIRONMENT", "AWS_PROFILE": "other",
		"AWS_SHARED_CREDENTIALS_FILE": profile, "AWS_CONFIG_FILE": profile, "AWS_REGION": "eu-west-8", "AWS_DEFAULT_REGION": "eu-west-7",
		"AWS_ENDPOINT_URL": trap.URL, "AWS_ENDPOINT_URL_S3": trap.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT": trap.URL,
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": trap.URL, "AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported", "AWS_MAX_ATTEMPTS": "9",
		"HTTP_PROXY": trap.URL, "HTTPS_PROXY": trap.URL, "ALL_PROXY": trap.URL, "http_proxy": trap.URL, "https_proxy": trap.URL, "NO_PROXY": "", "no_proxy": "",
	} {
		t.Setenv(name, value)
	}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		got := r.Header.Get("Authorization")
		if !strings.Contains(got, "Credential="+keyID+"/") || !strings.Contains(got, "/us-east-1/s3/") || r.Header.Get("X-Amz-Security-Token") != "token" {
			t.Errorf("Authorization = %q with the token %q, want those of the configuration", got, r.Header.Get("X-Amz-Security-Token"))
		}
		for name := range r.Header {
			if strings.Contains(strings.ToLower(name), "checksum") {
				t.Errorf("the request has %s", name)
			}
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	c := stores.Config{URL: "s3://bucket?region=us-east-1&use_path_style=true&endpoint=" + server.URL, AccessKeyID: keyID, SecretAccessKey: secret, SessionToken: "token"}
	s := open(t, c)
	_, err := upload(t.Context(), s, stores.Object{Key: "key", Size: -1}, []byte("body"), 4)
	wantFailure(t, err, stores.ReasonError)
	if requests.Load() != 6 || touched.Load() != 0 {
		t.Errorf("%d requests, and %d to places of the environment; want 6 (three tries of PutObject and of HeadObject) and none", requests.Load(), touched.Load())
	}
	c.AccessKeyID, c.SecretAccessKey = "", ""
	if s, err := stores.Open("archive", c); err == nil {
		s.Close(t.Context())
		t.Error("Open without keys = nil, want an error")
	}
}

// TestTLS checks that a store uses its authorities alone, and TLS 1.2 at least.
func TestTLS(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"etag"`)
	})
	modern := httptest.NewUnstartedServer(handler)
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of failed handshakes
	modern.Config.ErrorLog = quiet
	modern.StartTLS()
	defer modern.Close()
	old := httptest.NewUnstartedServer(handler)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = quiet
	old.StartTLS()
	defer old.Close()
	pool := x509.NewCertPool()
	pool.AddCert(modern.Certificate())
	for _, row := range []struct {
		name   string
		server *httptest.Server
		cas    *x509.CertPool
		ok     bool
	}{{"trusted", modern, pool, true}, {"not trusted", modern, nil, false}, {"TLS 1.1", old, pool, false}} {
		s := open(t, stores.Config{URL: "s3://bucket?region=a&use_path_style=true&endpoint=" + row.server.URL, CAs: row.cas})
		_, err := upload(t.Context(), s, stores.Object{Key: "key", Size: -1}, []byte("body"), 4)
		if (err == nil) != row.ok {
			t.Errorf("%s: the upload = %v, want ok %t", row.name, err, row.ok)
		}
		if !row.ok {
			if detail := wantFailure(t, err, stores.ReasonError); !strings.Contains(detail, "TLS") {
				t.Errorf("%s: the detail is %q", row.name, detail)
			}
		}
		s.Close(t.Context())
	}
}

// TestHostileStore checks what a store can put into texts and results, and how much of it is read.
func TestHostileStore(t *testing.T) {
	t.Parallel()
	const token = "a-session-token"
	var injected atomic.Pointer[http.Header] // a header with a type that the origin made up
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, text)
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		ok      bool
	}{
		{"code with the secret", func(w http.ResponseWriter, r *http.Request) { status(403, secret+" "+token)(w, r, nil) }, false},
		{"long code", func(w http.ResponseWriter, r *http.Request) { status(403, strings.Repeat("é", 20_000))(w, r, nil) }, false},
		{"control characters", func(w http.ResponseWriter, r *http.Request) {
			status(403, "a\n\x1b[31m\u202e\u0085b"+strings.Repeat(" ", 50)+secret)(w, r, nil)
		}, false},
		{"endless error", func(w http.ResponseWriter, r *http.Request) { endless(w, r, nil) }, false},
		{"not XML", func(w http.ResponseWriter, r *http.Request) { http.Error(w, secret, http.StatusBadGateway) }, false},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, false},
		{"not HTTP", raw("SSH-2.0 " + secret + " " + token + strings.Repeat("x", 10_000) + "\r\n\r\n"), false},
		{"header with the secret", raw("HTTP/1.1 200 OK\r\n" + secret + token + "\r\n\r\n"), false},
		{"large header", raw("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 100_000) + "\r\n\r\n"), false},
		{"odd results", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Etag"] = []string{strings.Repeat("x", 10_000)}
			w.Header()["X-Amz-Version-Id"] = []string{"\xff\xfe"}
		}, true},
		{"no ETag", func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Injected") != "" || strings.Contains(r.Header.Get("Content-Type"), "html") {
				injected.Store(&r.Header)
			}
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(row.handler)
			defer server.Close()
			s := open(t, stores.Config{URL: "s3://bucket?region=a&use_path_style=true&endpoint=" + server.URL, AccessKeyID: keyID, SecretAccessKey: secret, SessionToken: token})
			got, err := upload(t.Context(), s, stores.Object{Key: "key", Size: -1, ContentType: "text/html\r\nX-Injected: 1"}, []byte("body"), 4)
			s.Close(t.Context())
			if h := injected.Load(); h != nil {
				t.Errorf("the header is %v, want no type that an origin made up", *h)
			}
			if row.ok {
				if err != nil || len(got.ETag)+len(got.Version) > 0 {
					t.Errorf("Commit = %+v, %v, want neither ETag nor version", got, err)
				}
				return
			}
			for _, text := range []string{wantFailure(t, err, stores.ReasonError), fmt.Sprint(err)} {
				if strings.Contains(text, token) || strings.Contains(text, secret) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("the text is %q", text)
				}
			}
		})
	}
}

// TestHostileMultipart checks what a store can put into the answers that a multipart upload needs.
func TestHostileMultipart(t *testing.T) {
	t.Parallel()
	const created = "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>"
	for _, row := range []struct{ name, create, etag, complete, want string }{
		{"no upload ID", "", "etag", "", "CreateMultipartUpload"},
		{"long upload ID", fmt.Sprintf(created, strings.Repeat("x", 1025)), "etag", "", "CreateMultipartUpload"},
		{"endless response", fmt.Sprintf(created, strings.Repeat("x", 10<<20)), "etag", "", "CreateMultipartUpload"},
		{"no ETag", fmt.Sprintf(created, "id"), "", "", "UploadPart"},
		{"long ETag", fmt.Sprintf(created, "id"), strings.Repeat("x", 129), "", "UploadPart"},
		{"an error with status 200", fmt.Sprintf(created, "id"), "etag", "<Error><Code>InternalError</Code></Error>", "CompleteMultipartUpload"},
		{"an empty completion", fmt.Sprintf(created, "id"), "etag", "", "CompleteMultipartUpload"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				switch op := operation(r); {
				case op == "Create":
					_, _ = io.WriteString(w, row.create)
				case strings.HasPrefix(op, "Part"):
					w.Header().Set("ETag", row.etag)
				case op == "Complete":
					_, _ = io.WriteString(w, row.complete)
				case op == "Head":
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			defer server.Close()
			s := open(t, stores.Config{URL: "s3://bucket?region=a&use_path_style=true&endpoint=" + server.URL})
			_, err := upload(t.Context(), s, stores.Object{Key: "key", Size: -1}, make([]byte, part+1), part)
			s.Close(t.Context())
			if detail := wantFailure(t, err, stores.ReasonError); !strings.Contains(detail, row.want+":") {
				t.Errorf("the error is %q, want one of %s", detail, row.want)
			}
		})
	}
}
