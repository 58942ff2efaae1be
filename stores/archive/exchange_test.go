package archive_test

import (
	"fmt"
	"strings"
	"testing"

	"fetchd/stores/archive"
	"fetchd/warc"
)

const octets = "application/octet-stream"

// TestBlocks checks which bytes become the block of the response record.
func TestBlocks(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nServer: origin\r\n\r\n"
	partial := func(e *archive.Exchange) { e.Whole, e.Truncated = false, warc.TruncatedDisconnect }
	chunked := func(e *archive.Exchange) { e.Length, e.Chunked = -1, true }
	both := func(a, b func(*archive.Exchange)) func(*archive.Exchange) {
		return func(e *archive.Exchange) { a(e); b(e) }
	}
	length := func(n int64) func(*archive.Exchange) { return func(e *archive.Exchange) { e.Length = n } }
	for _, tt := range []struct {
		name, received string
		change         func(e *archive.Exchange)
		block          string
		kind           string // empty: HTTP
		truncated      warc.Truncated
	}{
		{"known length", head + "hello", length(5), head + "hello", "", ""},
		{"bytes after the length", head + "hello" + "HTTP/1.1 200 OK\r\n", length(5), head + "hello", "", ""},
		{"largest length", head + "hello", both(length(1<<63-1), partial), head + "hello", "", warc.TruncatedDisconnect},
		{"fewer bytes than the length", head + "hell", both(length(5), partial), head + "hell", "", warc.TruncatedDisconnect},
		{"fewer bytes than the length, called whole", head + "hell", length(5), head + "hell", "", warc.TruncatedUnspecified},
		{"ends with the connection", head + "hello", length(-1), head + "hello", "", ""},
		{"no body", head + "hello", func(e *archive.Exchange) { e.Bodyless = true }, head, "", ""},
		{"chunks", head + "5\r\nhello\r\n0\r\n\r\n", chunked, head + "5\r\nhello\r\n0\r\n\r\n", "", ""},
		{"chunks with extensions", head + "5;a=\"b\"\r\nhello\r\n0 ;c\r\n\r\n", chunked, head + "5;a=\"b\"\r\nhello\r\n0 ;c\r\n\r\n", "", ""},
		{"bytes after the chunks", head + "5\r\nhello\r\n0\r\n\r\nHTTP/1.1", chunked, head + "5\r\nhello\r\n0\r\n\r\n", "", ""},
		{"trailer", head + "0\r\nA: b\r\nC: d\r\n\r\nmore", chunked, head + "0\r\nA: b\r\nC: d\r\n\r\n", "", ""},
		{"trailer without an end", head + "0\r\nA: b\r\n", both(chunked, partial), head + "0\r\nA: b\r\n", "", warc.TruncatedDisconnect},
		{"chunk without an end", head + "5\r\nhel", both(chunked, partial), head + "5\r\nhel", "", warc.TruncatedDisconnect},
		{"chunks that are none", head + "hello\r\n0\r\n\r\n", both(chunked, partial), head + "hello\r\n0\r\n\r\n", "", warc.TruncatedDisconnect},
		{"chunk that is longer than its size", head + "5\r\nhello!\r\n0\r\n\r\n", both(chunked, partial), head + "5\r\nhello!\r\n0\r\n\r\n", "", warc.TruncatedDisconnect},
		{"chunk of a negative size", head + "-5\r\nhello", both(chunked, partial), head + "-5\r\nhello", "", warc.TruncatedDisconnect},
		{"chunk of a size above the largest", head + "ffffffffffffffff\r\nhello", both(chunked, partial), head + "ffffffffffffffff\r\nhello", "", warc.TruncatedDisconnect},
		{"interim heads", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + head + "hello", length(5), head + "hello", "", ""},
		{"101 is final", "HTTP/1.1 101 Switching Protocols\r\n\r\nbytes", length(-1), "HTTP/1.1 101 Switching Protocols\r\n\r\nbytes", "", ""},
		{"only an interim head", "HTTP/1.1 100 Continue\r\n\r\n", partial, "", "", ""},
		{"incomplete head", "HTTP/1.1 200 OK\r\nServer: or", partial, "HTTP/1.1 200 OK\r\nServer: or", octets, warc.TruncatedDisconnect},
		{"incomplete head after an interim one", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2", partial, "HTTP/1.1 2", octets, warc.TruncatedDisconnect},
		{"another protocol", "SSH-2.0-OpenSSH\r\n\r\n", partial, "SSH-2.0-OpenSSH\r\n\r\n", octets, warc.TruncatedDisconnect},
		{"HTTP/2 in place of HTTP/1", "HTTP/2 200 OK\r\n\r\n", partial, "HTTP/2 200 OK\r\n\r\n", octets, warc.TruncatedDisconnect},
		{"empty line before the head", "\r\n" + head, partial, "\r\n" + head, octets, warc.TruncatedDisconnect},
		{"lines that end with LF", "HTTP/1.0 200 OK\nA: b\n\nhello", length(-1), "HTTP/1.0 200 OK\nA: b\n\nhello", "", ""},
		{"status without a reason", "HTTP/1.1 404\r\n\r\n", length(0), "HTTP/1.1 404\r\n\r\n", "", ""},
		{"CR CR LF is no empty line", "HTTP/1.1 200 OK\r\n\r\r\n\r\nhello", length(5), "HTTP/1.1 200 OK\r\n\r\r\n\r\nhello", "", ""},
		{"long head", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 9000) + "\r\n\r\nhello", length(5),
			"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 9000) + "\r\n\r\nhello", "", ""},
		{"head above the maximum", strings.Repeat("a", archive.MaxHead+1), partial, strings.Repeat("a", archive.MaxHead), octets, warc.TruncatedDisconnect},
		{"nothing", "", partial, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := openArchive(t, archive.Config{Dir: dir})
			e := plainExchange(0)
			tt.change(&e)
			outcome := record(t, a, getRequest, tt.received, e)
			closeArchive(t, a)
			records := readDir(t, dir)
			sameAs(t, outcome, records)
			if tt.block == "" {
				if len(records) != 1 || records[0].ConcurrentTo != nil {
					t.Fatalf("%d records, want a request that points at no response", len(records))
				}
				return
			}
			if len(records) != 2 {
				t.Fatalf("%d records, want 2", len(records))
			}
			r := records[1]
			if r.block != tt.block || r.Truncated != tt.truncated {
				t.Errorf("block %.200q, truncated %q, want %.200q, %q", r.block, r.Truncated, tt.block, tt.truncated)
			}
			kind, payload := warc.HTTPResponse, !e.Bodyless
			if tt.kind != "" {
				kind, payload = tt.kind, false
			}
			if r.ContentType != kind || (r.PayloadDigest != "") != payload {
				t.Errorf("content type %q, payload digest %q", r.ContentType, r.PayloadDigest)
			}
		})
	}
}

// TestFields checks the fields of both records.
func TestFields(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir, Software: "fetchd v1", Operator: "Ops <ops@example.com>"})
	e := plainExchange(5)
	e.TLS, e.URL = "TLS 1.3", "https://origin.example/a b?q=\x01ü"
	outcome := record(t, a, getRequest, okResponse("hello"), e)
	closeArchive(t, a)
	name := names(t, dir)[0]
	all := readFile(t, dir+"/"+name)
	sameAs(t, outcome, all[1:])
	info, request, response := all[0], all[1], all[2]
	for _, want := range []string{"software: fetchd v1\r\n", "operator: Ops <ops@example.com>\r\n", "hostname: ", "format: WARC File Format 1.1\r\n"} {
		if !strings.Contains(info.block, want) {
			t.Errorf("warcinfo %q has no %q", info.block, want)
		}
	}
	if info.Filename != name {
		t.Errorf("file name %q, want %q", info.Filename, name)
	}
	for _, r := range []found{request, response} {
		if r.TargetURI != "https://origin.example/a%20b?q=%01%C3%BC" || r.IPAddress.String() != "192.0.2.1" ||
			fmt.Sprint(r.Protocol) != "[http/1.1 tls/1.3]" || !r.Date.Equal(began.Truncate(1000)) {
			t.Errorf("fields %+v", r.Header)
		}
	}
	if request.Type != warc.Request || request.block != getRequest || request.PayloadDigest != "" ||
		fmt.Sprint(request.ConcurrentTo) != fmt.Sprint([]string{response.ID}) {
		t.Errorf("request %+v", request)
	}
	if response.Type != warc.Response || fmt.Sprint(response.ConcurrentTo) != fmt.Sprint([]string{request.ID}) ||
		response.PayloadDigest != "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N" {
		t.Errorf("response %+v", response)
	}
}

// TestDescribe checks what is added to the warcinfo record, and that redacted fields are not.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir, Software: "fetchd v1", Operator: "Ops", Redact: []string{"from"}})
	must(t, a.Describe([]warc.Field{{Name: "robots", Value: "classic"}, {Name: "Operator", Value: "Jo"}, {Name: "http-header-from", Value: "jo@example.org"},
		{Name: "http-header-user-agent", Value: "bot/1"}}))
	if err := a.Describe([]warc.Field{{Name: "a b", Value: "c"}}); err == nil {
		t.Error("a name with a space is accepted")
	}
	record(t, a, getRequest, okResponse("hello"), plainExchange(5))
	closeArchive(t, a)
	info := readFile(t, dir+"/"+names(t, dir)[0])[0].block
	if !strings.HasPrefix(info, "software: fetchd v1\r\nhostname: ") ||
		!strings.HasSuffix(info, "digest-algorithm: sha1\r\nrobots: classic\r\nOperator: Jo\r\nhttp-header-user-agent: bot/1\r\n") {
		t.Errorf("warcinfo %q", info)
	}
}

// TestMetadata checks the metadata record of a response.
func TestMetadata(t *testing.T) {
	fields := []warc.Field{{Name: "via", Value: "http://origin.example/"}, {Name: "hopsFromSeed", Value: "L"}}
	for _, tt := range []struct {
		name, received string
		redact         []string
		fields         []warc.Field
		block          string // empty: there is no record
	}{
		{"a response", okResponse("hello"), nil, fields, "via: http://origin.example/\r\nhopsFromSeed: L\r\n"},
		{"at the start", okResponse("hello"), nil, []warc.Field{{Name: "hopsFromSeed"}}, "hopsFromSeed: \r\n"},
		{"Referer is redacted", okResponse("hello"), []string{"referer"}, fields, "hopsFromSeed: L\r\n"},
		{"no response", "", nil, fields, ""},
		{"no fields", okResponse("hello"), nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := openArchive(t, archive.Config{Dir: dir, Redact: tt.redact})
			e := plainExchange(5)
			e.Metadata = tt.fields
			outcome := record(t, a, getRequest, tt.received, e)
			closeArchive(t, a)
			records := readDir(t, dir)
			sameAs(t, outcome, records[:len(outcome)])
			if tt.block == "" {
				if len(records) != len(outcome) {
					t.Errorf("%d records, want %d", len(records), len(outcome))
				}
				return
			}
			got := records[len(outcome)]
			if got.Type != warc.Metadata || got.block != tt.block || got.ContentType != warc.WarcFields || got.TargetURI != e.URL ||
				fmt.Sprint(got.ConcurrentTo) != fmt.Sprint([]string{outcome[1].ID}) || !got.Date.Equal(outcome[1].Date) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRedact checks which values are not recorded.
func TestRedact(t *testing.T) {
	for _, tt := range []struct {
		name           string
		store, added   []string
		sent, received string
		request, reply string
		fields         [2]string
	}{
		{"field of the service", nil, []string{"Authorization"}, "GET / HTTP/1.1\r\nAuthorization: Bearer secret\r\nA: b\r\n\r\nAuthorization: body",
			okResponse("Authorization: body"), "GET / HTTP/1.1\r\nAuthorization: redacted\r\nA: b\r\n\r\nAuthorization: body", okResponse("Authorization: body"),
			[2]string{"Authorization", ""}},
		{"field of the store", []string{"set-cookie", "Cookie"}, []string{"Authorization"}, "GET / HTTP/1.1\r\nCOOKIE:a=secret\r\n\r\n",
			"HTTP/1.1 200 OK\r\nset-cookie: secret\r\nSet-Cookie: secret\r\n\r\n", "GET / HTTP/1.1\r\nCOOKIE: redacted\r\n\r\n",
			"HTTP/1.1 200 OK\r\nset-cookie: redacted\r\nSet-Cookie: redacted\r\n\r\n", [2]string{"Cookie", "Set-Cookie"}},
		{"two fields", []string{"B"}, []string{"A", "b"}, "GET / HTTP/1.1\r\nA: secret\r\nB: secret\r\n\r\n", "HTTP/1.1 200 OK\r\nA: kept\r\n\r\n",
			"GET / HTTP/1.1\r\nA: redacted\r\nB: redacted\r\n\r\n", "HTTP/1.1 200 OK\r\nA: kept\r\n\r\n", [2]string{"A, B", ""}},
		{"value on further lines", []string{"X"}, nil, getRequest, "HTTP/1.1 200 OK\r\nX: secret\r\n secret\r\n\tsecret\r\nY: a\r\n b\r\n\r\n",
			getRequest, "HTTP/1.1 200 OK\r\nX: redacted\r\nY: a\r\n b\r\n\r\n", [2]string{"", "X"}},
		{"space before the colon", []string{"X"}, nil, getRequest, "HTTP/1.1 200 OK\r\nX : secret\r\n\r\n", getRequest,
			"HTTP/1.1 200 OK\r\nX : redacted\r\n\r\n", [2]string{"", "X"}},
		{"lines that end with LF", []string{"X"}, nil, getRequest, "HTTP/1.1 200 OK\nX: secret\n\n", getRequest, "HTTP/1.1 200 OK\nX: redacted\n\n", [2]string{"", "X"}},
		{"incomplete head", []string{"X"}, nil, getRequest, "HTTP/1.1 200 OK\r\nX: secre", getRequest, "HTTP/1.1 200 OK\r\nX: redacted", [2]string{"", "X"}},
		{"names that only begin alike", []string{"X-A"}, []string{"Host"}, "GET / HTTP/1.1\r\nHost-Name: a\r\n\r\n", "HTTP/1.1 200 OK\r\nX-AB: kept\r\nX: X-A: kept\r\n\r\n",
			"GET / HTTP/1.1\r\nHost-Name: a\r\n\r\n", "HTTP/1.1 200 OK\r\nX-AB: kept\r\nX: X-A: kept\r\n\r\n", [2]string{"", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := openArchive(t, archive.Config{Dir: dir, Redact: tt.store})
			e := plainExchange(-1)
			e.Redact = tt.added
			sameRecords := record(t, a, tt.sent, tt.received, e)
			closeArchive(t, a)
			records := readDir(t, dir)
			sameAs(t, sameRecords, records)
			for i, want := range []string{tt.request, tt.reply} {
				if records[i].block != want {
					t.Errorf("block %q, want %q", records[i].block, want)
				}
				if got := warc.Get(records[i].Extra, "Fetchd-Redacted"); got != tt.fields[i] {
					t.Errorf("redacted %q, want %q", got, tt.fields[i])
				}
			}
		})
	}
}

// TestRedactResponse checks that fields of a response are redacted for one exchange, and none of its request.
func TestRedactResponse(t *testing.T) {
	dir := t.TempDir()
	a := openArchive(t, archive.Config{Dir: dir})
	e := plainExchange(-1)
	e.RedactResponse = []string{"Via"}
	record(t, a, "GET / HTTP/1.1\r\nVia: a\r\n\r\n", "HTTP/1.1 200 OK\r\nVIA: inside\r\nA: b\r\n\r\n", e)
	closeArchive(t, a)
	records := readDir(t, dir)
	if got, want := records[0].block, "GET / HTTP/1.1\r\nVia: a\r\n\r\n"; got != want {
		t.Errorf("request %q, want %q", got, want)
	}
	if got, want := records[1].block, "HTTP/1.1 200 OK\r\nVIA: redacted\r\nA: b\r\n\r\n"; got != want {
		t.Errorf("response %q, want %q", got, want)
	}
}

// TestRevisits checks which responses are recorded without their payload.
func TestRevisits(t *testing.T) {
	const hello = warc.Digest("sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N")
	const sha256 = warc.Digest("sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
	earlier := archive.Earlier{ID: "urn:uuid:00000000-0000-4000-8000-000000000001", URL: "http://origin.example/före", Date: began.AddDate(0, 0, -1), PayloadDigest: hello}
	const inChunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunked := func(e *archive.Exchange) { e.Chunked = true }
	for _, tt := range []struct {
		name, received string
		digest         warc.Digest
		change         func(e *archive.Exchange)
		profile        string // empty: a response
	}{
		{"same payload", okResponse("hello"), hello, nil, warc.IdenticalPayloadDigest},
		{"same payload, another encoding of the digest", okResponse("hello"), "SHA1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d", nil, warc.IdenticalPayloadDigest},
		{"digest of another algorithm", okResponse("hello"), sha256, nil, ""},
		{"same payload in chunks", inChunks + "5\r\nhello\r\n0\r\n\r\n", hello, chunked, warc.IdenticalPayloadDigest},
		{"same payload in other chunks", inChunks + "2;a\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n\r\nnext", hello, chunked, warc.IdenticalPayloadDigest},
		{"same payload as sent, but chunks are broken", inChunks + "hello", hello, chunked, ""},
		{"empty payload in chunks", inChunks + "0\r\n\r\n", "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", chunked, ""},
		{"another payload", okResponse("other"), hello, nil, ""},
		{"no digest", okResponse("hello"), "", nil, ""},
		{"same payload of a failed status", "HTTP/1.1 500 No\r\n\r\nhello", hello, nil, ""},
		{"same payload, truncated", okResponse("hello"), hello, func(e *archive.Exchange) { e.Whole = false }, ""},
		{"empty payload", okResponse(""), "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", nil, ""},
		{"304", "HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n", hello, func(e *archive.Exchange) { e.Bodyless = true }, warc.ServerNotModified},
		{"304 without a digest", "HTTP/1.1 304 Not Modified\r\n\r\n", "", func(e *archive.Exchange) { e.Bodyless = true }, warc.ServerNotModified},
		{"304 without an earlier record", "HTTP/1.1 304 Not Modified\r\n\r\n", "", func(e *archive.Exchange) { e.Bodyless, e.Earlier = true, nil }, ""},
		{"same payload of another URL", okResponse("hello"), hello, func(e *archive.Exchange) { e.URL = "http://origin.example/f" }, ""},
		{"same payload of another query", okResponse("hello"), hello, func(e *archive.Exchange) { e.URL = earlier.URL + "?a" }, ""},
		{"same payload of another scheme", okResponse("hello"), hello, func(e *archive.Exchange) { e.URL = "https://origin.example/före" }, ""},
		{"same payload, another fragment", okResponse("hello"), hello, func(e *archive.Exchange) { e.URL, e.Earlier.URL = earlier.URL+"#a", earlier.URL+"#b" }, warc.IdenticalPayloadDigest},
		{"304 of another URL", "HTTP/1.1 304 Not Modified\r\n\r\n", hello, func(e *archive.Exchange) { e.Bodyless, e.URL = true, "http://origin.example/f" }, ""},
		{"incomplete head of a 304", "HTTP/1.1 304 Not Modified\r\n", "", func(e *archive.Exchange) { e.Whole = false }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := openArchive(t, archive.Config{Dir: dir})
			e := plainExchange(-1)
			e.URL = earlier.URL
			e.Earlier = &archive.Earlier{ID: earlier.ID, URL: earlier.URL, Date: earlier.Date, PayloadDigest: tt.digest}
			if tt.change != nil {
				tt.change(&e)
			}
			outcome := record(t, a, getRequest, tt.received, e)
			closeArchive(t, a)
			records := readDir(t, dir)
			sameAs(t, outcome, records)
			r := records[1]
			if tt.profile == "" {
				if r.Type != warc.Response || r.block != tt.received || r.RefersTo != "" || r.Profile != "" {
					t.Errorf("%+v", r)
				}
				return
			}
			head, _, _ := strings.Cut(tt.received, "\r\n\r\n")
			if r.Type != warc.Revisit || r.Profile != tt.profile || r.block != head+"\r\n\r\n" || r.RefersTo != earlier.ID ||
				!strings.HasPrefix(r.RefersToTargetURI, "http://origin.example/f%C3%B6re") || !r.RefersToDate.Equal(earlier.Date) || r.ContentType != warc.HTTPResponse {
				t.Errorf("%+v", r)
			}
			if identical := tt.profile == warc.IdenticalPayloadDigest; (r.PayloadDigest == hello) != identical || (r.Truncated == warc.TruncatedLength) != identical {
				t.Errorf("payload digest %q, truncated %q", r.PayloadDigest, r.Truncated)
			}
		})
	}
}

// TestTruncatedRequest checks that a record says if an origin answered before it had read the request.
func TestTruncatedRequest(t *testing.T) {
	const head = "POST /page HTTP/1.1\r\nHost: origin.example\r\nContent-Length: 5\r\n\r\n"
	for _, tt := range []struct {
		name, sent string
		truncated  warc.Truncated
	}{
		{"whole", head + "hello", ""},
		{"part of the body", head + "hell", warc.TruncatedUnspecified},
		{"no body", head, warc.TruncatedUnspecified},
		{"part of the head", head[:30], warc.TruncatedUnspecified},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := openArchive(t, archive.Config{Dir: dir})
			e := plainExchange(5)
			e.RequestLength = 5
			outcome := record(t, a, tt.sent, okResponse("hello"), e)
			closeArchive(t, a)
			records := readDir(t, dir)
			sameAs(t, outcome, records)
			if got := records[0]; got.block != tt.sent || got.Truncated != tt.truncated {
				t.Errorf("block %q, truncated %q, want %q", got.block, got.Truncated, tt.truncated)
			}
			if got := records[1].Truncated; got != "" {
				t.Errorf("the response is truncated: %q", got)
			}
		})
	}
}
