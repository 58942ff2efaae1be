package auth

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/signing"
	"fetchd/test/must"
)

// mac is HMAC-SHA256.
func mac(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return string(h.Sum(nil))
}

// FuzzHMAC compares which texts are accepted with a regular expression, and what is signed and sent with a replacer.
func FuzzHMAC(f *testing.F) {
	for _, seed := range [][2]string{{"{id}.{timestamp}.{body}", "v1,{signature}"}, {"v0:{timestamp}:{body}", "t={timestamp},v1={signature}"}, {"{method}{target}", "{id}"},
		{"{body}}", "{signature}{signature}"}, {"{", "}"}, {"{{id}}", "{id}{"}, {"{signature}", "{body}"}, {"{}", "{ id}"}, {"", ""}, {"\xff{id}\n", "{ID}"}} {
		f.Add(seed[0], seed[1])
	}
	const key = "hush-key-of-fuzz"
	path := filepath.Join(f.TempDir(), "key")
	must.Succeed(f, os.WriteFile(path, []byte(key), 0o600))
	made, err := (&HMAC{KeyFile: path, Fields: map[string]string{"X-Sig": "{signature}"}}).signer()
	must.Succeed(f, err)
	m := &signing.Message{ID: "{body}", Time: time.Unix(1614265330, 0), Method: "PUT", Target: "/{id}?{", Body: []byte("{timestamp}")}
	common := []string{"{id}", m.ID, "{timestamp}", "1614265330"}
	signed := strings.NewReplacer(append(common, "{method}", m.Method, "{target}", m.Target, "{body}", string(m.Body))...)
	mayBeSigned := regexp.MustCompile(`(?s)^([^{}]|\{(id|timestamp|method|target|body)\})*$`)
	mayBeSent := regexp.MustCompile(`(?s)^([^{}]|\{(id|timestamp|signature)\})*$`)
	f.Fuzz(func(t *testing.T, signs, sends string) {
		k := *made
		var err error
		if k.signs, err = parseTemplate(signs, "id", "timestamp", "method", "target", "body"); (err == nil) != mayBeSigned.MatchString(signs) {
			t.Fatalf("signs %q: %v", signs, err)
		}
		value, err2 := parseTemplate(sends, "id", "timestamp", "signature")
		if (err2 == nil) != mayBeSent.MatchString(sends) {
			t.Fatalf("a field %q: %v", sends, err2)
		}
		if err != nil || err2 != nil {
			return
		}
		k.values = []template{value}
		fields, err := k.sign(m)
		must.Succeed(t, err)
		want := strings.NewReplacer(append(common, "{signature}", hex.EncodeToString([]byte(mac(key, signed.Replace(signs)))))...).Replace(sends)
		if len(fields) != 1 || fields[0].Value != want {
			t.Errorf("%q signed, %q sent: %v, want %s", signs, sends, fields, want)
		}
	})
}

// FuzzKeyEncodings checks that a key has the bytes that its text stands for, that no short one is accepted, and that no
// error quotes the text.
func FuzzKeyEncodings(f *testing.F) {
	for _, seed := range []string{"hush-key-of-github\n", "whsec_aHVzaC1rZXktb2Ytd2ViaG9va3M=", "CwsLCwsLCwsLCwsLCwsLCwsLCws=", "aHVzaC1odXNoLWh1c2gt", "whsec_", " \t", "CwsLCwsLCwsL\r\nCwsLCwsLCwsLCwt=", "\xff\xfe"} {
		f.Add(seed)
	}
	errorText := regexp.MustCompile(`^auth: hmac: the key (has \d+ bytes, and the minimum is 16: [a-z0-9 ,]+|is not base64 \(RFC 4648 section 4\)|does not start with whsec_)$`)
	f.Fuzz(func(t *testing.T, text string) {
		got := make(map[string]string)
		for name, parse := range keyEncodings {
			key, err := parse(text)
			if err != nil && (key != "" || !errorText.MatchString(fmt.Sprint(err))) || err == nil && len(key) < 16 {
				t.Errorf("%s: %q is %d bytes, %v", name, text, len(key), err)
			}
			got[name] = string(key)
		}
		trimmed := strings.TrimSpace(text)
		if raw := got["raw"]; raw != trimmed && (raw != "" || len(trimmed) >= 16) {
			t.Errorf("raw: %q becomes %q", text, raw)
		}
		if key := got["base64"]; key != "" {
			letters := strings.TrimRight(strings.NewReplacer("\r", "", "\n", "").Replace(trimmed), "=")
			encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(key)), "=")
			if len(encoded) != len(letters) || encoded[:len(encoded)-1] != letters[:len(letters)-1] { // the last letter may have bits too many
				t.Errorf("base64: %q becomes %q", text, key)
			}
		}
		if key, _ := webhookKey("whsec_" + text); string(key) != got["base64"] {
			t.Errorf("%q is %q, and after whsec_ %q", text, got["base64"], key)
		}
	})
}

// FuzzProfile checks that credentials are a part of the file, that no other section changes them, and that no
// error quotes the file.
func FuzzProfile(f *testing.F) {
	const file = "# shared\n[default]\naws_access_key_id = AKIDDEFAULT\naws_secret_access_key=hush-default=\nregion = eu-west-1\n\n[ other ]\n; temporary\naws_access_key_id=ASIAOTHER\r\naws_secret_access_key = hush-other\naws_session_token = hush-token==\n"
	for _, profile := range []string{"default", "other", "", "none", "default ", "a\nb", "]"} {
		f.Add(file, profile)
	}
	f.Add("[default]\naws_secret_access_key=hush\naws_access_key_id=A\x01\n[default]\naws_access_key_id=B", "default")
	f.Add("[a]\n\vaws_access_key_id=\xff\naws_secret_access_key\u00a0=0", "a")
	f.Add("[a]]\n[[a]\naws_access_key_id\naws_secret_access_key==\n= = =\n[a", "a")
	errorText := regexp.MustCompile(`(?s)^auth: aws-sigv4: (there is no section \[.*\]|there is no access key ID, or no secret access key|the access key ID or the session token contains a control character)$`)
	f.Fuzz(func(t *testing.T, text, profile string) {
		c, err := parseProfile(text, profile)
		if err != nil {
			if got := fmt.Sprint(err); !errorText.MatchString(got) || strings.Contains(got, "no section") && !strings.Contains(got, fmt.Sprintf("[%.40s]", profile)) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		for name, value := range map[string]string{"aws_access_key_id": c.AccessKeyID, "aws_secret_access_key": c.SecretAccessKey, "aws_session_token": c.SessionToken} {
			inFile := func(line []string) bool { return strings.TrimSpace(line[1]) == value }
			if name != "aws_session_token" && value == "" || value != "" && !slices.ContainsFunc(regexp.MustCompile(`(?m)`+name+`[^=\n]*=(.*)$`).FindAllStringSubmatch(text, -1), inFile) {
				t.Errorf("%s: %q, which is not in %q", name, value, text)
			}
		}
		const stranger = "aws_access_key_id = STRANGER\naws_secret_access_key = hush\naws_session_token = hush\n"
		for _, around := range []string{stranger + text, "[" + profile + "-]\n" + stranger + text, text + "\n[" + profile + "-]\n" + stranger} {
			if again, err := parseProfile(around, profile); err != nil || again != c {
				t.Errorf("%q: %v, want %v; %v", around, again, c, err)
			}
		}
	})
}

// FuzzSigV4 compares signatures with those of a second reading of the documentation, which reads what is sent.
func FuzzSigV4(f *testing.F) {
	for _, seed := range []string{"/", "//example//", "/example/..", "/a/./b/../../c/", "/a%2Fb%20%c3%bc/~*'(!)", "/a/b/..", "/%2e%2e/a", "/...", "/?b=2&a=1", "/?a=b&a=a&a", "/?%zz", "/?a;b", "/?a+b=%20&&=&c%00",
		"/?params[page]=1&params[pageSize]=20", "/?b=1&%F0%9F%8D%BA=2", "/?a=~&a={", "/x?", "/\xff?\xff"} {
		f.Add(seed, "h.example:8443", []byte("body"))
	}
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	signers := make(map[string]*sigV4)
	for _, service := range []string{"s3", "execute-api"} {
		k, _, err := (&SigV4{Region: "r", Service: service, AccessKeyID: "A", SecretAccessKey: "hush"}).signer()
		must.Succeed(f, err)
		signers[service] = k
	}
	f.Fuzz(func(t *testing.T, target, host string, body []byte) {
		u, err := url.Parse("https://h.example" + target)
		if err != nil || u.Host != "h.example" || u.Fragment != "" || host == "" || strings.Contains(host, " ") {
			return // no request is like that
		}
		for service, k := range signers {
			canonical := k.canonicalURL(u)
			if again := k.canonicalURL(canonical); again.EscapedPath() != canonical.EscapedPath() {
				t.Errorf("%s: %q becomes %q, and then %q", service, target, canonical.EscapedPath(), again.EscapedPath())
			}
			q := sentRequest{target: u.RequestURI(), host: host, body: body, time: at.Format("20060102T150405Z"), service: service}
			fields, err := k.sign(&signing.Message{Time: at, Method: "PUT", URL: u, Authority: host, Target: q.target, Header: http.Header{"Accept": {"*/*"}}, Body: body})
			query, ok := q.query()
			if (err == nil) != ok {
				t.Fatalf("%s: %q, %v", service, target, err)
			}
			if ok && !strings.HasSuffix(fields[0].Value, ", Signature="+q.signature(query)) {
				t.Errorf("%s: %q, %v", service, target, fields)
			}
		}
	})
}

// sentRequest is a PUT as an origin receives it.
type sentRequest struct {
	target, host, time, service string
	body                        []byte
}

// signature returns the signature in hexadecimal digits.
func (q *sentRequest) signature(query string) string {
	sum := sha256.Sum256(q.body)
	headers, names := "host:"+q.host+"\n", "host;x-amz-date"
	if q.service == "s3" {
		headers, names = headers+"x-amz-content-sha256:"+hex.EncodeToString(sum[:])+"\n", "host;x-amz-content-sha256;x-amz-date"
	}
	request := sha256.Sum256([]byte("PUT\n" + q.path() + "\n" + query + "\n" + headers + "x-amz-date:" + q.time + "\n\n" + names + "\n" + hex.EncodeToString(sum[:])))
	day := q.time[:8]
	key := mac(mac(mac(mac("AWS4hush", day), "r"), q.service), "aws4_request")
	return hex.EncodeToString([]byte(mac(key, "AWS4-HMAC-SHA256\n"+q.time+"\n"+day+"/r/"+q.service+"/aws4_request\n"+hex.EncodeToString(request[:]))))
}

// path returns the canonical path.
func (q *sentRequest) path() string {
	path, _, _ := strings.Cut(q.target, "?")
	if q.service == "s3" {
		return escape(unescape(path), "/")
	}
	var kept []string
	for _, s := range strings.Split(path, "/") {
		switch {
		case s == ".." && len(kept) > 0:
			kept = kept[:len(kept)-1]
		case s != "" && s != "." && s != "..":
			kept = append(kept, s)
		}
	}
	if len(kept) > 0 && strings.HasSuffix(path, "/") {
		kept = append(kept, "")
	}
	return escape("/"+strings.Join(kept, "/"), "/")
}

// query returns the canonical query. ok is false if it has none, or if the parameters have another order before
// they are encoded.
func (q *sentRequest) query() (canonical string, ok bool) {
	_, query, _ := strings.Cut(q.target, "?")
	if strings.Contains(query, ";") || regexp.MustCompile(`%($|.$|[^0-9a-fA-F]|.[^0-9a-fA-F])`).MatchString(query) {
		return "", false
	}
	var plain, encoded [][2]string
	for _, pair := range strings.Split(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(strings.ReplaceAll(pair, "+", " "), "=")
		plain = append(plain, [2]string{unescape(name), unescape(value)})
		encoded = append(encoded, [2]string{escape(unescape(name), ""), escape(unescape(value), "")})
	}
	byName := func(a, b [2]string) int { return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1])) }
	slices.SortFunc(plain, byName)
	slices.SortFunc(encoded, byName)
	texts := make([]string, len(encoded))
	for i, e := range encoded {
		if unescape(e[0]) != plain[i][0] || unescape(e[1]) != plain[i][1] {
			return "", false
		}
		texts[i] = e[0] + "=" + e[1]
	}
	return strings.Join(texts, "&"), true
}

// escape returns a text in which every byte is escaped that is neither unreserved (RFC 3986) nor among the others.
func escape(text, others string) string {
	var b bytes.Buffer
	for i := range len(text) {
		if c := text[i]; strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"+others, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape returns a text without escapes.
func unescape(text string) string {
	return regexp.MustCompile(`%[0-9a-fA-F]{2}`).ReplaceAllStringFunc(text, func(e string) string {
		c, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(c)})
	})
}
