package conns

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"

	"fetchd/classify"
)

const (
	status  = "HTTP/1.1 200 OK\r\n"
	five    = status + "Content-Length: 5\r\n"
	chunked = status + "Transfer-Encoding: chunked\r\n\r\n"
	hello   = "5\r\nhello\r\n"
	last    = "0\r\n\r\n"
)

// reply returns a reply after which the origin reads on.
func reply(name, head, body string) differential {
	return differential{name: name, head: head, body: body}
}

func (d differential) with(then ending) differential { d.then = then; return d }

// more marks a reply whose body has bytes behind the response.
func (d differential) more() differential { d.surplus = true; return d }

func (d differential) differs(why string, ours func(*outcome)) differential {
	d.why, d.ours = why, ours
	return d
}

const otherVersion = "a client of HTTP/1.1 accepts no other major version (RFC 9110 §2.5)"

// sorted returns a map in the order of its keys, so that the rows are always the same.
func sorted[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// fails returns what an outcome is if the head is rejected.
func fails(class classify.Class) func(*outcome) {
	return func(o *outcome) { *o = outcome{Class: class, Request: o.Request, Next: o.Next} }
}

// notReused changes an outcome to that of a connection for one request.
func notReused(o *outcome) { o.Reused = false }

// shut1 are replies of one head, with the connection closed behind them.
func shut1(names map[string]string, then ending) (all []differential) {
	for name, head := range sorted(names) {
		all = append(all, reply(name, head, "").with(then))
	}
	return all
}

// framings are bodies.
func framings() []differential {
	all := []differential{
		reply("a length", five+"\r\n", "hello"),
		reply("a length of 0", status+"Content-Length: 0\r\n\r\n", ""),
		reply("a long body", status+"Content-Length: 100000\r\n\r\n", strings.Repeat("x", 100_000)),
		reply("no length", status+"\r\n", "hello").with(shut),
		reply("no length, and a reset", status+"\r\n", "hello").with(snap),
		reply("a short body", five+"\r\n", "hel").with(shut),
		reply("a short body, and a reset", five+"\r\n", "hel").with(snap),
		reply("no body", five+"\r\n", "").with(shut),
		reply("a whole body, and a close", five+"\r\n", "hello").with(shut),
		reply("a whole body, and a reset", five+"\r\n", "hello").with(snap),
		reply("a long body in chunks", chunked, "186A0\r\n"+strings.Repeat("x", 100_000)+"\r\n"+last),
		reply("chunks and a reset", chunked, hello).with(snap),
		reply("a reset in a chunk", chunked, "5\r\nhel").with(snap),
		reply("the largest size of a chunk", chunked, "ffffffffffffffff\r\nhello\r\n"+last).with(shut),
	}
	for name, body := range sorted(map[string]string{
		"one chunk": hello + last, "many chunks": strings.Repeat(hello, 200) + last, "no chunk": last,
		"a size in capitals": "0A\r\n0123456789\r\n" + last, "a size with zeros": "0005\r\nhello\r\n0000\r\n\r\n",
		"a blank behind a size": "5 \r\nhello\r\n" + last, "a tab behind a size": "5\t\r\nhello\r\n" + last,
		"a blank before a size": " 5\r\nhello\r\n" + last, "a bare LF behind the last size": hello + "0\n\n", "a bare LF behind a chunk": "5\r\nhello\n" + last,
		"an extension": "5;a=b\r\nhello\r\n" + last, "an extension in quotes": "5;a=\";\\\"\"\r\nhello\r\n0;z\r\n\r\n",
		"long extensions":             strings.Repeat("1;"+strings.Repeat("e", 200)+"\r\nx\r\n", 200) + last,
		"an extension of 5,000 bytes": "5;" + strings.Repeat("e", 5000) + "\r\nhello\r\n" + last, "a bare CR in an extension": "5;\r\rx\r\nhello\r\n" + last,
		"a size that is no number": "zz\r\nhello\r\n" + last, "a negative size": "-5\r\nhello\r\n" + last, "a signed size": "+5\r\nhello\r\n" + last,
		"a size with 0x": "0x5\r\nhello\r\n" + last, "a size that overflows": "fffffffffffffffff\r\nhello\r\n" + last,
		"a size with an underscore": "0_5\r\nhello\r\n" + last, "an empty size": "\r\nhello\r\n" + last, "no size but an extension": ";a\r\nhello\r\n" + last,
		"a chunk longer than its size": "5\r\nhello!\r\n" + last, "a chunk shorter than its size": "5\r\nhell\r\n" + last, "no line behind a chunk": "5\r\nhello" + last,
	}) {
		all = append(all, reply(name, chunked, body))
		if strings.HasSuffix(body, last) && len(body) < 100 {
			all = append(all, reply(name+", without the last chunk", chunked, strings.TrimSuffix(body, last)).with(shut))
		}
	}
	const ownTrailers = "trailers have the limits of a head, those of net/http have that of its buffer (spec §12)"
	for name, trailer := range sorted(map[string]string{
		"a trailer": "A: b\r\n", "two trailers": "A: b\r\nA: c\r\nD: e\r\n", "a trailer of 3,000 bytes": "A: " + strings.Repeat("x", 3000) + "\r\n",
		"a trailer of 4,085 bytes": "A: " + strings.Repeat("x", 4085-5) + "\r\n", "a trailer of 5,000 bytes": "A: " + strings.Repeat("x", 5000) + "\r\n",
		"trailers of 100,000 bytes": strings.Repeat("A: "+strings.Repeat("x", 95)+"\r\n", 1000), "600 trailers": strings.Repeat("a:b\r\n", 600),
		"a trailer without colon": "nonsense\r\n", "a folded trailer": "A: b\r\n c\r\n", "a trailer with NUL": "A: \x00\r\n", "a blank in the name of a trailer": "A b: c\r\n",
		"Content-Length in the trailer": "Content-Length: 7\r\n", "Transfer-Encoding in the trailer": "Transfer-Encoding: chunked\r\n",
	}) {
		d := reply(name, chunked, hello+"0\r\n"+trailer+"\r\n")
		switch name {
		case "a trailer of 5,000 bytes":
			d = d.differs(ownTrailers, func(o *outcome) {
				o.Trailer, o.Class, o.InBody, o.Reused = http.Header{"A": {strings.Repeat("x", 5000)}}, classify.NoClass, false, true
			})
		case "trailers of 100,000 bytes", "600 trailers":
			d = d.differs(ownTrailers, func(o *outcome) { o.Trailer, o.Class, o.InBody, o.Reused = nil, classify.Protocol, true, false })
		}
		all = append(all, d)
	}
	return append(all,
		reply("a trailer that was announced", status+"Trailer: A, B\r\nTransfer-Encoding: chunked\r\n\r\n", hello+"0\r\nA: b\r\n\r\n"),
		reply("a trailer that must not be announced", status+"Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n", hello+last),
		reply("half a trailer", chunked, hello+"0\r\nA: b\r\n").with(shut),
		reply("half a trailer, and a reset", chunked, hello+"0\r\nA:").with(snap),
		reply("half the end of the chunks", chunked, hello+"0\r\n").with(shut),
	)
}

// lengths are heads that say how long a body is, with a body of five bytes or one chunk.
func lengths() (all []differential) {
	for name, fields := range sorted(map[string][]string{
		"two lengths that agree": {"5", "5"}, "two lengths that differ": {"5", "6"}, "a list of lengths": {"5,6"}, "a list with an empty length": {"5,"}, "a list of equal words": {"x,x"},
		"an empty length": {""}, "an empty and a length": {"", "5"}, "a length with plus": {"+5"}, "a length with minus": {"-5"}, "a length with zeros": {"005"},
		"a length in hex": {"0x5"}, "a length with a fraction": {"5.0"}, "a length with blanks": {"  5\t "}, "a length with a blank inside": {"5 5"},
		"a length with an underscore": {"0_5"}, "a length of 2^63": {"9223372036854775808"}, "a length of 2^64": {"18446744073709551621"}, "the largest length": {"9223372036854775807"},
		"a folded length": {"\r\n 5"}, "a length with NUL": {"5\x00"}, "a length with a parameter": {"5;q=1"}, "lengths with blanks that agree": {"5", " 5 "}, "a length in words": {"five"},
	}) {
		head := status
		for _, value := range fields {
			head += "Content-Length: " + value + "\r\n"
		}
		all = append(all, reply(name, head+"\r\n", "hello").with(shut))
	}
	for name, fields := range sorted(map[string]string{
		"Chunked": "Transfer-Encoding: Chunked\r\n", "chunked twice in a list": "Transfer-Encoding: chunked, chunked\r\n", "chunked twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"gzip, chunked": "Transfer-Encoding: gzip, chunked\r\n", "identity": "Transfer-Encoding: identity\r\n", "identity and a length": "Transfer-Encoding: identity\r\nContent-Length: 10\r\n",
		"an empty coding": "Transfer-Encoding:\r\n", "a coding in blanks": "Transfer-Encoding: \t chunked \r\n", "a vertical tab before chunked": "Transfer-Encoding: \vchunked\r\n", "xchunked": "Transfer-Encoding: xchunked\r\n",
		"chunked with a parameter": "Transfer-Encoding: chunked;q=1\r\n", "chunked in quotes": "Transfer-Encoding: \"chunked\"\r\n", "chunked, identity": "Transfer-Encoding: chunked, identity\r\n",
		"a length before chunked": "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "a length behind chunked": "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
		"a bad length and chunked": "Content-Length: x\r\nTransfer-Encoding: chunked\r\n", "two lengths and chunked": "Content-Length: 3\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
		"an underscore in Transfer_Encoding": "Transfer_Encoding: chunked\r\nContent-Length: 10\r\n",
	}) {
		all = append(all, reply(name, status+fields+"\r\n", hello+last).with(shut))
	}
	return all
}

// misread are responses that net/http does not read as RFC 9112 says.
func misread() (all []differential) {
	const old = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"
	kept := http.Header{"Connection": {"keep-alive"}}
	sized := outcome{Proto: "HTTP/1.1", Status: "200 OK", Header: http.Header{"Content-Length": {"5"}}, ContentLength: 5, Body: "hello"}
	coded := outcome{Proto: "HTTP/1.1", Status: "200 OK", Header: http.Header{}, ContentLength: -1, TransferEncoding: []string{"chunked"}, Body: "hello"}
	older, reused, interrupted, closed, named, trailed := coded, coded, coded, sized, sized, coded
	older.Proto, older.Header, older.Close = "HTTP/1.0", kept, true
	reused.Reused = true
	interrupted.Class, interrupted.InBody = classify.BodyInterrupted, true
	closed.Close = true
	named.Header = http.Header{"A": {"b"}, "Content-Length": {"5"}}
	trailed.Reused, trailed.Trailer = true, http.Header{"A": {"b"}}
	lax, spaced, listed, short := trailed, sized, sized, interrupted
	short.Body = "hello0"
	lax.Reused, listed.Reused = false, true
	spaced.Header = http.Header{"A": {"b c"}, "Content-Length": {"5"}}
	for _, row := range []struct {
		name, head, body string
		want             outcome
		waits            bool // Transport waits for the end of the connection
	}{
		{"chunked over HTTP/1.0, no length", old + "Transfer-Encoding: chunked\r\n\r\n", hello + last, older, true}, // §6.1
		{"Chunked over HTTP/1.0, and a length", old + "Transfer-Encoding: Chunked\r\nContent-Length: 15\r\n\r\n", hello + last, older, false},
		{"a length and chunks over HTTP/1.0", old + "content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n", hello + last, older, false},
		{"chunked over HTTP/1.0, a blank before the colon", old + "Transfer-Encoding : chunked\r\nContent-Length: 15\r\n\r\n", hello + last, older, false},
		{"identity over HTTP/1.0", old + "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n", "hello", outcome{Class: classify.Protocol}, false},
		{"a length and chunks", status + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", hello + last, coded, false}, // §6.3
		{"chunks and a length", status + "TRANSFER-ENCODING: chunked\r\nCONTENT-LENGTH: 15\r\n\r\n", hello + last, coded, false},
		{"chunks and a length with a blank before the colon", status + "Transfer-Encoding: chunked\r\nContent-Length : 15\r\n\r\n", hello + last, coded, false},
		{"a blank before the colon of a coding, no length", status + "Transfer-Encoding : chunked\r\n\r\n", hello + last, coded, true}, // §5.1
		{"a tab before the colon of a coding", status + "Transfer-Encoding\t: chunked\r\nContent-Length: 15\r\n\r\n", hello + last, coded, false},
		{"a blank before the colon of a length", status + "Content-Length : 5\r\n\r\n", "hello", sized, true},
		{"blanks before the colon of a length", status + "Content-Length \t :5\r\n\r\n", "hello", sized, true},
		{"a blank before the colon of Connection", five + "Connection : close\r\n\r\n", "hello", closed, false},
		{"a blank before the colon", five + "A : b\r\n\r\n", "hello", named, false},
		{"a tab before the colon", five + "A\t: b\r\n\r\n", "hello", named, false},
		{"a blank before an extension", chunked, "5 ;a=b\r\nhello\r\n" + last, reused, false}, // §7.1.1
		{"a tab before an extension", chunked, "5\t;a=b\r\nhello\r\n" + last, reused, false},
		{"blanks in an extension", chunked, "5 \t ; a = b ; c\r\nhello\r\n" + last, reused, false},
		{"a blank before an extension of the last chunk", chunked, hello + "0 ;a\r\n\r\n", reused, false},
		{"a blank before an extension, without the last chunk", chunked, "5 ;a=b\r\nhello\r\n5 ;a", interrupted, true},
		{"a tab before the colon of a trailer", chunked, hello + "0\r\nA\t: b\r\n\r\n", trailed, false},
		{"a bare CR in a value", five + "A: b\rc\r\n\r\n", "hello", spaced, false}, // §2.2
		{"CR CR LF", five + "A: b\r\r\n\r\n", "hello", named, false},
		{"a bare CR before the colon", five + "A\r: b\r\n\r\n", "hello", named, false},
		{"a bare CR in the trailer", chunked, hello + "0\r\nA: b\r\r\n\r\n", trailed, false},
		{"bare LF in chunks", chunked, "5\nhello\n0\n\n", coded, false},
		{"bare LF in chunks, and a blank", chunked, "5 ;a\nhello\n0\n\n", coded, false},
		{"a bare LF behind a size", chunked, "5\nhello\r\n" + last, interrupted, false},
		{"a short chunk and bare LF", chunked, "6\nhello0\n\n", short, false},
		{"a bare LF in the trailer", chunked, hello + "0\r\nA: b\n\r\n", lax, true},
		{"a bare LF behind the trailer", chunked, hello + "0\r\nA: b\r\n\n", lax, true},
		{"a list of equal lengths", status + "Content-Length: 5, 5\r\n\r\n", "hello", listed, false}, // RFC 9110 §8.6
		{"a list of equal lengths and bare LF", "HTTP/1.1 200 OK\nContent-Length: 5, 5\n\n", "hello", listed, false},
		{"lists of equal lengths", status + "Content-Length: 5,05\r\nContent-Length: 5 ,\t5\r\n\r\n", "hello", listed, false},
	} {
		d := reply(row.name, row.head, row.body).differs("RFC 9112", func(o *outcome) {
			want := row.want
			want.Request, want.Next = o.Request, "next"
			*o = want
		})
		if d.shape.method = http.MethodGet; row.waits {
			d.then = shut
		}
		all = append(all, d)
	}
	return all
}

// statuses are status lines.
func statuses() (all []differential) {
	for name, line := range sorted(map[string]string{
		"no reason": "HTTP/1.1 200", "an empty reason": "HTTP/1.1 200 ", "a long reason": "HTTP/1.1 200 " + strings.Repeat("x", 5000), "a reason in UTF-8": "HTTP/1.1 200 Gar\u00e7on",
		"NUL in the reason": "HTTP/1.1 200 O\x00K", "blanks before the status": "HTTP/1.1    200 OK", "a tab before the status": "HTTP/1.1\t200 OK", "a tab behind the status": "HTTP/1.1 200\tOK",
		"status 099": "HTTP/1.1 099 x", "status 000": "HTTP/1.1 000 x", "status 600": "HTTP/1.1 600 x", "status 999": "HTTP/1.1 999 x", "status 1000": "HTTP/1.1 1000 x", "status abc": "HTTP/1.1 abc x",
		"status 20": "HTTP/1.1 20 x", "status -20": "HTTP/1.1 -20 x", "status +20": "HTTP/1.1 +20 x", "status 2_0": "HTTP/1.1 2_0 x", "status 500": "HTTP/1.1 500 Oops", "status 418": "HTTP/1.1 418 x",
		"HTTP/1.2": "HTTP/1.2 200 OK", "HTTP/1.9": "HTTP/1.9 200 OK", "HTTP/1.10": "HTTP/1.10 200 OK", "HTTP/1": "HTTP/1 200 OK", "HTTP/11": "HTTP/11 200 OK", "HTTP/x.y": "HTTP/x.y 200 OK",
		"http/1.1": "http/1.1 200 OK", "ICY": "ICY 200 OK", "a blank before the version": " HTTP/1.1 200 OK", "an empty line before the status line": "\r\nHTTP/1.1 200 OK", "a LF before the status line": "\nHTTP/1.1 200 OK",
		"a byte order mark": "\ufeffHTTP/1.1 200 OK", "a status line without a status": "HTTP/1.1 ", "a version alone": "HTTP/1.1",
	}) {
		all = append(all, reply(name, line+"\r\nContent-Length: 5\r\n\r\n", "hello"))
	}
	for _, version := range []string{"0.0", "0.9", "2.0", "3.0"} {
		all = append(all, reply("HTTP/"+version, "HTTP/"+version+" 200 OK\r\nContent-Length: 5\r\n\r\n", "hello").differs(otherVersion, fails(classify.Protocol)))
	}
	for _, code := range []string{"204 No Content", "205 Reset Content", "304 Not Modified"} {
		line := "HTTP/1.1 " + code + "\r\n"
		d := reply(code+" with a body", line+"\r\n", "hello").more()
		if strings.HasPrefix(code, "205") {
			d.surplus = false
			d.then = shut // it has a body without a length
		}
		all = append(all, reply(code, line+"Content-Length: 0\r\n\r\n", ""), d,
			reply(code+" with a length", line+"Content-Length: 5\r\n\r\n", "").with(shut),
			reply(code+" with chunked", line+"Transfer-Encoding: chunked\r\n\r\n", "").with(shut))
	}
	return all
}

// informationals are 1xx responses.
func informationals() (all []differential) {
	const early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	hundred := "HTTP/1.1 100 Continue\r\n\r\n"
	for name, before := range sorted(map[string]string{
		"100": hundred, "100 twice": hundred + hundred, "102": "HTTP/1.1 102 Processing\r\n\r\n", "103": early, "100, 103": hundred + early, "16 times 103": strings.Repeat(early, 16),
		"199": "HTTP/1.1 199 x\r\nA: b\r\n\r\n", "100 of HTTP/1.0": "HTTP/1.0 100 Continue\r\n\r\n", "103 with a length": "HTTP/1.1 103 x\r\nContent-Length: 5\r\n\r\n", "100 with bare LF": "HTTP/1.1 100 Continue\n\n",
		"103 with Connection: close": "HTTP/1.1 103 x\r\nConnection: close\r\n\r\n", "103 with a body": "HTTP/1.1 103 x\r\nContent-Length: 5\r\n\r\nhello", "103 with chunked": "HTTP/1.1 103 x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"103 of 60,000 bytes": "HTTP/1.1 103 x\r\nA: " + strings.Repeat("x", 60_000) + "\r\n\r\n", "two heads of 40,000 bytes": strings.Repeat("HTTP/1.1 103 x\r\nA: "+strings.Repeat("x", 40_000)+"\r\n\r\n", 2),
		"103 of 70,000 bytes": "HTTP/1.1 103 x\r\nA: " + strings.Repeat("x", 70_000) + "\r\n\r\n", "103 without colon": "HTTP/1.1 103 x\r\nnonsense\r\n\r\n",
	}) {
		all = append(all, reply(name, before+five+"\r\n", "hello"))
	}
	const upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
	all = append(all,
		reply("17 times 103", strings.Repeat(early, 17)+five+"\r\n", "hello").differs("at most 16 responses with 1xx may come first", fails(classify.Protocol)),
		reply("513 fields in a 103", "HTTP/1.1 103 x\r\n"+strings.Repeat("a:b\r\n", 513)+"\r\n"+five+"\r\n", "hello").differs("a head has at most 512 fields", fails(classify.Protocol)),
		reply("100, and a close", hundred, "").with(shut), reply("103, and a reset", early, "").with(snap), reply("103, and half a head", early+"HTTP/1.1 2", "").with(shut),
		reply("101", upgrade, "").with(shut), reply("101 without Upgrade", "HTTP/1.1 101 x\r\n\r\n", "").with(shut), reply("100, 101", hundred+upgrade, "").with(shut))
	switched := reply("101, and another protocol", upgrade, "hello").with(shut).differs("no request asks for another protocol, so none is read", func(o *outcome) { o.Body = "" })
	switched.shape.method = http.MethodGet // HEAD gets no body
	return append(all, switched)
}

// persistences are heads that say whether the connection can be used again.
func persistences() (all []differential) {
	for name, fields := range sorted(map[string]string{
		"close": "Connection: close", "Close": "Connection: Close", "CLOSE": "CONNECTION: CLOSE", "keep-alive": "Connection: keep-alive", "keep-alive, close": "Connection: keep-alive, close", "close, TE": "Connection: close, TE",
		"close behind a comma": "Connection: ,,\tclose", "two lines, close last": "Connection: TE\r\nConnection: close", "two lines, close first": "Connection: close\r\nConnection: keep-alive", "xclose": "Connection: xclose", "close;": "Connection: close;",
		"close x": "Connection: close x", "close in quotes": "Connection: \"close\"", "empty": "Connection:", "Proxy-Connection": "Proxy-Connection: close", "folded close": "Connection: TE,\r\n close",
	}) {
		for _, version := range []string{"1.0", "1.1"} {
			all = append(all, reply("Connection, "+name+", HTTP/"+version, "HTTP/"+version+" 200 OK\r\n"+fields+"\r\nContent-Length: 5\r\n\r\n", "hello"),
				reply("Connection, "+name+", HTTP/"+version+", no body", "HTTP/"+version+" 204 OK\r\n"+fields+"\r\n\r\n", ""))
		}
	}
	return append(all,
		reply("HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "hello"),
		reply("HTTP/1.0 without a length", "HTTP/1.0 200 OK\r\n\r\n", "hello").with(shut),
		reply("HTTP/1.0 without a length, keep-alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", "hello").with(shut),
		reply("Keep-Alive of 60 seconds", five+"Keep-Alive: timeout=60, max=1\r\n\r\n", "hello"),
		reply("Keep-Alive of 0 seconds", five+"Keep-Alive: timeout=0\r\n\r\n", "hello").differs("the origin says how long a connection may be idle (RFC 2068 §19.7.1.1)", notReused),
		reply("Negotiate", "HTTP/1.1 401 x\r\nWWW-Authenticate: Negotiate\r\nContent-Length: 5\r\n\r\n", "hello").differs("the connection has an identity (spec A5)", notReused),
		reply("two responses", five+"\r\n", "hello"+five+"\r\nsmugg").more(),
		reply("an empty line behind the response", five+"\r\n", "hello\r\n").more(),
		reply("NUL behind the response", five+"\r\n", "hello\x00").more(),
		reply("a byte behind the last chunk", chunked, hello+last+"x").more(),
		reply("100,000 bytes behind the response", five+"\r\n", "hello"+strings.Repeat("x", 100_000)).more(),
		reply("bytes behind the response, and Connection: close", five+"Connection: close\r\n\r\n", "hello!").more(),
		reply("a 408 behind the response", five+"\r\n", "helloHTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n").with(shut).more(),
	)
}

// fields are lines of heads.
func fields() (all []differential) {
	for name, line := range sorted(map[string]string{
		"a folded line": "A: b\r\n c\r\n", "a folded line with a tab": "A: b\r\n\tc\r\n", "the first line is folded": " A: b\r\n", "a fold of blanks": "A: b\r\n  \r\n", "bare LF": "A: b\n",
		"no colon": "nonsense\r\n", "no name": ": b\r\n", "no value": "A:\r\n", "a blank in the name": "A b: c\r\n", "a blank before the name": "B: c\r\n A: b\r\n",
		"NUL in the value": "A: \x00\r\n", "NUL in the name": "A\x00: b\r\n", "a control byte in the value": "A: \x01\r\n", "DEL in the value": "A: \x7f\r\n", "a control byte in the name": "A\x01: b\r\n", "UTF-8 in the value": "A: \u00e9\r\n", "Latin-1 in the value": "A: \xe9\r\n",
		"UTF-8 in the name": "\u00e9: b\r\n", "a name in small letters": "x-a-b: c\r\n", "a name in capitals": "X-A-B: c\r\n", "separators in the name": "A(b): c\r\n", "blanks around the value": "A: \t b \t\r\n", "the same name twice": "A: b\r\na: c\r\n", "a value with colons": "A: b:c: d\r\n",
		"a line of 5,000 bytes": "A: " + strings.Repeat("x", 5000) + "\r\n", "a line of 60,000 bytes": "A: " + strings.Repeat("x", 60_000) + "\r\n", "a line of 70,000 bytes": "A: " + strings.Repeat("x", 70_000) + "\r\n", "a name of 60,000 bytes": strings.Repeat("a", 60_000) + ": b\r\n",
		"lines of 70,000 bytes": strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 70), "500 fields": strings.Repeat("a:b\r\n", 500), "Content-Encoding": "Content-Encoding: gzip\r\n", "Set-Cookie": "Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n", "Upgrade": "Upgrade: h2c\r\nConnection: Upgrade\r\n",
	}) {
		all = append(all, reply(name, status+line+"Content-Length: 5\r\n\r\n", "hello"))
	}
	for _, n := range []int{511, 512, 600, 2000} {
		d := reply(fmt.Sprintf("%d fields and a length", n), status+strings.Repeat("a:b\r\n", n)+"Content-Length: 5\r\n\r\n", "hello")
		if n+1 > MaxHeaderFields {
			d = d.differs("a head has at most 512 fields", fails(classify.Protocol))
		}
		all = append(all, d)
	}
	for _, n := range []int{MaxHeadBytes - 1, MaxHeadBytes, MaxHeadBytes + 1} {
		all = append(all, reply(fmt.Sprintf("a head of %d bytes", n), five+"A: "+strings.Repeat("x", n-len(five)-len("A: \r\n\r\n"))+"\r\n\r\n", "hello"))
	}
	all = append(all, reply("bare LF everywhere", "HTTP/1.1 200 OK\nContent-Length: 5\n\n", "hello"), reply("a head of 100,000 bytes without end", status+"A: "+strings.Repeat("x", 100_000), "").with(stay))
	cuts := map[string]string{
		"nothing": "", "half a version": "HTT", "half a status line": "HTTP/1.1 200 O", "a status line": status, "half a field": status + "Content-Le", "a field": five, "half the end": five + "\r",
		"SSH": "SSH-2.0-OpenSSH_9.6\r\n", "HTML": "<html>hello</html>\r\n\r\n", "a TLS alert": "\x15\x03\x01\x00\x02\x02\x28", "zeros": strings.Repeat("\x00", 100), "an empty line": "\r\n\r\n", "a frame of HTTP/2": "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64",
	}
	for then, name := range sorted(map[ending]string{shut: "a close", snap: "a reset"}) {
		for _, d := range shut1(cuts, then) {
			d.name = name + " behind " + d.name
			all = append(all, d)
		}
	}
	return all
}

// early are answers to a request whose body the origin has not read. Transport returns them or the
// error of writing the request, whichever comes first, if the answer is not HTTP or the origin resets the
// connection.
func early() (all []differential) {
	const answerCounts = "the answer counts, also if the request could not be written"
	answered := func(o *outcome) {
		*o = outcome{Proto: "HTTP/1.1", Status: "200 OK", Header: http.Header{"Content-Length": {"5"}}, ContentLength: 5, Body: "hello", Next: "next"}
	}
	for _, d := range []differential{
		reply("a length", five+"\r\n", "hello"), reply("chunks", chunked, hello+last), reply("a long body", status+"Content-Length: 100000\r\n\r\n", strings.Repeat("x", 100_000)), reply("204", "HTTP/1.1 204 No Content\r\n\r\n", ""),
		reply("413", "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", "hello"), reply("a 103", "HTTP/1.1 103 Early Hints\r\n\r\n"+five+"\r\n", "hello"),
		reply("no HTTP", "SSH-2.0-OpenSSH_9.6\r\n\r\n", "").differs(answerCounts, fails(classify.Protocol)),
		reply("HTTP/2.0", "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\n", "hello").differs(otherVersion, fails(classify.Protocol)),
	} {
		d.either = d.why == answerCounts
		all = append(all, early1("reads no more", d.with(stay))...)
		all = append(all, early1("ends its side and reads on", d.with(drain))...)
	}
	resets := reply("a length", five+"\r\n", "hello").with(snap).differs(answerCounts, answered)
	resets.either = true
	return append(all, early1("resets the connection", resets)...)
}

// early1 returns a reply to long requests, over TCP and TLS.
func early1(what string, d differential) (all []differential) {
	d.name, d.early = "an origin that "+what+" behind "+d.name, true
	for _, d.shape = range []shape{{name: "PUT 1 MiB", method: http.MethodPut, body: 1 << 20}, {name: "POST 400 KiB", method: http.MethodPost, body: 400 << 10}} {
		for _, d.secure = range []bool{false, true} {
			all = append(all, d)
		}
	}
	return all
}

// endings are ways to end a connection with TLS.
func endings() (all []differential) {
	for _, d := range []differential{
		reply("no answer", "", ""), reply("half a head", status, ""), reply("no length", status+"\r\n", "hello"), reply("a short body", five+"\r\n", "hel"), reply("a whole body", five+"\r\n", "hello"),
		reply("chunks without end", chunked, hello), reply("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n", "hello"),
	} {
		for then, name := range sorted(map[ending]string{shut: "close_notify", abort: "a close without close_notify", snap: "a reset"}) {
			d := d.with(then)
			d.name, d.secure = name+" behind "+d.name, true
			d.shape = shape{name: "GET", method: http.MethodGet}
			all = append(all, d)
		}
	}
	return all
}

// differentials returns the rows.
func differentials() (all []*differential) {
	shapes := []shape{
		{name: "GET", method: http.MethodGet},
		{name: "HEAD", method: http.MethodHead},
		{name: "PUT", method: http.MethodPut, body: 5},
		{name: "PUT 64 KiB", method: http.MethodPut, body: 64 << 10},
		{name: "GET alone", method: http.MethodGet, alone: true},
	}
	replies := framings()
	for _, more := range [][]differential{lengths(), statuses(), informationals(), persistences(), fields(), misread()} {
		replies = append(replies, more...)
	}
	heads := make(map[string]bool) // of HEAD
	for i, d := range replies {
		for j, shape := range shapes {
			d := d
			isRare := j > 1 && (i+j)%5 != 0
			if d.shape.method != "" && (d.shape.method != shape.method || shape.alone) || isRare {
				continue
			}
			if d.shape = shape; shape.method == http.MethodHead {
				if d.surplus = false; heads[d.head] {
					continue
				}
				heads[d.head] = true
			}
			all = append(all, &d)
			if secure := d; (i+j)%6 == 0 {
				secure.secure = true
				all = append(all, &secure)
			}
		}
	}
	for _, d := range append(early(), endings()...) {
		all = append(all, &d)
	}
	return all
}
