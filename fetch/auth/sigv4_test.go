package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/signing"
	"fetchd/test/must"
)

// The credentials of AWS' documentation.
const (
	suiteKey, suiteSecret = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	s3Key, s3Secret       = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

// TestSigV4 compares signatures with those in the documentation of AWS: its test suite for Signature Version 4,
// and the examples for Amazon S3.
func TestSigV4(t *testing.T) {
	t.Parallel()
	suiteTime, s3Time := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC), time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, row := range []struct {
		name, service, method, url string
		header                     http.Header
		body                       string
		signed, signature          string
	}{
		{"get-vanilla", "service", "GET", "https://example.amazonaws.com/", nil, "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"post-vanilla", "service", "POST", "https://example.amazonaws.com/", nil, "", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"get-vanilla-query-order-key-case", "service", "GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1", nil, "", "host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"get-unreserved", "service", "GET", "https://example.amazonaws.com/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", nil, "", "host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		{"post-vanilla-query", "service", "POST", "https://example.amazonaws.com/?Param1=value1", nil, "", "host;x-amz-date", "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
		{"get-slashes", "service", "GET", "https://example.amazonaws.com//example//", nil, "", "host;x-amz-date", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"},
		{"get-relative", "service", "GET", "https://example.amazonaws.com/example/..", nil, "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"post-x-www-form-urlencoded", "service", "POST", "https://example.amazonaws.com/", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "Param1=value1", "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"IAM ListUsers", "iam", "GET", "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}}, "", "content-type;host;x-amz-date", "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
		{"S3 GET Object", "s3", "GET", "https://examplebucket.s3.amazonaws.com/test.txt", http.Header{"Range": {"bytes=0-9"}}, "", "host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"S3 PUT Object", "s3", "PUT", "https://examplebucket.s3.amazonaws.com/test$file.text", http.Header{"Date": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Storage-Class": {"REDUCED_REDUNDANCY"}}, "Welcome to Amazon S3.", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"S3 GET Bucket Lifecycle", "s3", "GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", nil, "", "host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"S3 List Objects", "s3", "GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", nil, "", "host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(row.url)
			must.Succeed(t, err)
			id, secret, at := suiteKey, suiteSecret, suiteTime
			if row.service == "s3" {
				id, secret, at = s3Key, s3Secret, s3Time
			}
			p := mustNew(t, auth.Config{Origins: []string{"https://" + u.Host}, SigV4: &auth.SigV4{Region: "us-east-1", Service: row.service, AccessKeyID: id, SecretAccessKey: auth.Secret(secret)}})
			h := http.Header{"Host": {u.Host}, "Accept": {"*/*"}, "User-Agent": {"fetchd"}, "Fetchd-Hops": {"1"}, "Content-Length": {fmt.Sprint(len(row.body))}}
			for name, values := range row.header {
				h[name] = values
			}
			before := u.String()
			got := sign(t, p, &signing.Message{Time: at.In(time.FixedZone("", 3600)), Method: row.method, URL: u, Authority: u.Host, Target: u.RequestURI(), Header: h, Body: []byte(row.body)})
			want := fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s/us-east-1/%s/aws4_request, SignedHeaders=%s, Signature=%s", id, at.Format("20060102"), row.service, row.signed, row.signature)
			if got["Authorization"] != want || got["X-Amz-Date"] != at.Format("20060102T150405Z") || before != u.String() {
				t.Errorf("%v\nwant %s", got, want)
			}
			if digest, s3 := got["X-Amz-Content-Sha256"]; s3 != (row.service == "s3") || s3 && (digest == empty) != (row.body == "") {
				t.Errorf("digest %q", digest)
			}
			if text := fmt.Sprintf("%v %+v %#v %s", p, p, p, struct{ P auth.Provider }{p}); strings.Contains(text, secret) {
				t.Errorf("the key is in %s", text)
			}
		})
	}
}

// TestSigV4Credentials checks what is read from a credentials file.
func TestSigV4Credentials(t *testing.T) {
	t.Parallel()
	const file = "# shared\n[default]\naws_access_key_id = AKIDDEFAULT\naws_secret_access_key=hush-default=\nregion = eu-west-1\n\n[ other ]\n; temporary\naws_access_key_id=ASIAOTHER\r\naws_secret_access_key = hush-other\naws_session_token = hush-token==\n[half]\naws_access_key_id=AKIDHALF\n"
	for _, row := range []struct {
		name   string
		config auth.SigV4
		file   string
		key    string // of Credential
		token  string
		fault  string // in the error
	}{
		{"the default", auth.SigV4{}, file, "AKIDDEFAULT", "", ""},
		{"a profile with a token", auth.SigV4{Profile: "other"}, file, "ASIAOTHER", "hush-token==", ""},
		{"a profile without a secret", auth.SigV4{Profile: "half"}, file, "", "", "no secret access key"},
		{"no such profile", auth.SigV4{Profile: "none"}, file, "", "", "[none]"},
		{"an empty file", auth.SigV4{}, "", "", "", "[default]"},
		{"a file that is something else", auth.SigV4{}, "hush\x00hush", "", "", "[default]"},
		{"a control character", auth.SigV4{}, "[default]\naws_access_key_id=A\x01B\naws_secret_access_key=hush", "", "", "control character"},
		{"a key and its secret", auth.SigV4{AccessKeyID: "AKIDFIXED", SecretAccessKey: "hush"}, "", "AKIDFIXED", "", ""},
		{"with a token", auth.SigV4{AccessKeyID: "AKIDFIXED", SecretAccessKey: "hush", SessionToken: "hush-token"}, "", "AKIDFIXED", "hush-token", ""},
		{"both", auth.SigV4{AccessKeyID: "AKIDFIXED", SecretAccessKey: "hush"}, file, "", "", "credentials file"},
		{"a token with a file", auth.SigV4{SessionToken: "hush"}, file, "", "", "credentials file"},
		{"nothing", auth.SigV4{}, "none", "", "", "credentials-file: is missing"},
		{"a profile without a file", auth.SigV4{Profile: "a", AccessKeyID: "AKIDFIXED", SecretAccessKey: "hush"}, "none", "", "", "profile"},
		{"no region", auth.SigV4{Region: " "}, file, "", "", "region"},
		{"a service with a slash", auth.SigV4{Service: "s3/x"}, file, "", "", "service"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.file != "none" && row.config.AccessKeyID == "" || row.name == "both" {
				row.config.File = keyFile(t, row.file)
			}
			if row.config.Region == "" {
				row.config.Region = "eu-west-1"
			}
			if row.config.Service == "" {
				row.config.Service = "execute-api"
			}
			p, err := auth.New(auth.Config{Origins: signedOrigins, SigV4: &row.config})
			if row.fault != "" {
				if err == nil || !strings.Contains(fmt.Sprint(err), row.fault) || strings.Contains(fmt.Sprint(err), "hush") {
					t.Errorf("%v, %v; want an error with %q and without a secret", p, err, row.fault)
				}
				return
			}
			must.Succeed(t, err)
			got := sign(t, p, &signing.Message{URL: &url.URL{Path: "/"}, Method: "GET", Authority: "hooks.example", Header: http.Header{}})
			if !strings.Contains(got["Authorization"], "Credential="+row.key+"/") || got["X-Amz-Security-Token"] != row.token {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestSigV4NewKeys checks that a credentials file is read again after a rejection, and that a query without
// a canonical form, or with another one than the SDK makes, is not signed.
func TestSigV4NewKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		credentials := func(id string) string {
			return "[default]\naws_access_key_id=" + id + "\naws_secret_access_key=hush\n"
		}
		path := keyFile(t, credentials("ONE"))
		p := mustNew(t, auth.Config{Origins: signedOrigins, SigV4: &auth.SigV4{Region: "r", Service: "s3", File: path}})
		m := signing.Message{URL: &url.URL{Path: "/"}, Method: "GET", Authority: "hooks.example", Header: http.Header{}}
		first := sign(t, p, &m)["Authorization"]
		if err := p.Refresh(t.Context(), first); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("Refresh = %v, want ErrRefused", err)
		}
		replace(t, path, credentials("TWO"))
		<-time.After(time.Second)
		if err := p.Refresh(t.Context(), first); err != nil {
			t.Errorf("Refresh = %v", err)
		}
		if got := sign(t, p, &m)["Authorization"]; !strings.Contains(got, "Credential=TWO/") {
			t.Errorf("%s, want the new key", got)
		}
	})
	p := mustNew(t, auth.Config{Origins: signedOrigins, SigV4: &auth.SigV4{Region: "r", Service: "s3", AccessKeyID: "ONE", SecretAccessKey: "hush"}})
	if err := p.Refresh(t.Context(), ""); !errors.Is(err, auth.ErrRefused) {
		t.Errorf("Refresh of credentials that do not change = %v, want ErrRefused", err)
	}
	for _, query := range []string{"a=%zz", "a;b=c", "a[b]=1&a[bC]=2", "a=z&a={"} {
		if got, err := signWith(t, p, &signing.Message{URL: &url.URL{Path: "/", RawQuery: query}, Method: "GET", Header: http.Header{}}); err == nil {
			t.Errorf("?%s is signed: %v", query, got)
		}
	}
}
