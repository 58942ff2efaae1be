package origin

import (
	"time"
)

// The phases in which reset, fin and h2-rst act.
const (
	atAcceptBody = "accept-body"
	atBeforeHead = "before-head"
	atInHead     = "in-head"
	atInBody     = "in-body"
)

// lastThis is the LAST of h2-goaway that covers the stream at hand.
const lastThis = "this"

// statusParams is the parameters of STATUS and close-idle. It is constant.
var statusParams = []param{
	{"size", "N", "body of N seeded bytes", number(maxNumber, func(s *step) *int64 { return &s.answer.size })},
	{"offset", "N", "the seeded bytes begin at N", number(maxNumber, func(s *step) *int64 { return &s.answer.offset })},
	{"body", "TEXT", "body as given", given(func(s *step) **string { return &s.answer.text })},
	{"charset-bytes", "latin1|badutf8", "text body in ISO-8859-1, or with invalid UTF-8",
		choice(func(s *step) *string { return &s.answer.charset }, "latin1", "badutf8")},
	{"bomb", "N", "body of N zero bytes", number(maxNumber, func(s *step) *int64 { return &s.answer.bomb })},
	{"echo", "", "body is a JSON of the request as seen", flag(func(s *step) *bool { return &s.answer.echo })},
	{"coding", "gzip|deflate|rawdeflate|br|zstd", "content coding, really applied; rawdeflate is told as deflate",
		choice(func(s *step) *string { return &s.answer.coding }, "gzip", "deflate", "rawdeflate", "br", "zstd")},
	{"coding-cut", "N", "only the first N coded bytes, framed as if they were all",
		number(maxNumber, func(s *step) *int64 { return &s.answer.codingCut })},
	{"coding-lie", "NAME", "Content-Encoding says NAME, the bytes are not",
		text(func(s *step) *string { return &s.answer.codingLie })},

	{"type", "TYPE|none", "Content-Type", given(func(s *step) **string { return &s.answer.contentType })},
	{"etag", "VALUE", "ETag, raw", text(func(s *step) *string { return &s.answer.etag })},
	{"last-modified", "VALUE", "Last-Modified, raw", text(func(s *step) *string { return &s.answer.lastModified })},
	{"cond", "", "304 if If-None-Match or If-Modified-Since match etag or last-modified",
		flag(func(s *step) *bool { return &s.answer.cond })},
	{"range", "", "206 to one byte range (416 if outside), unless If-Range differs from etag or last-modified",
		flag(func(s *step) *bool { return &s.answer.ranges })},
	{"require", "NAME[=VALUE]", "401 unless the request has that field",
		text(func(s *step) *string { return &s.answer.require })},
	{"header", "NAME=VALUE", "any field, raw", anyField},
	{"set-cookie", "VALUE", "Set-Cookie, raw", field("Set-Cookie")},
	{"to", "LOCATION", "Location, raw; absent without it, empty with to=", field("Location")},
	{"retry-after-date", "SECONDS", "Retry-After: a date so far from now", dateField("Retry-After")},
	{"retry-after", "VALUE", "Retry-After, raw", field("Retry-After")},
	{"form", "imf|rfc850|asctime", "form of the dates written from SECONDS",
		choice(func(s *step) *string { return &s.answer.form }, "imf", "rfc850", "asctime")},
	{"date", "VALUE|none", "Date, raw", given(func(s *step) **string { return &s.answer.date })},
	{"date-offset", "SECONDS", "Date so far from now", dateOffset},
	{"head-size", "N", "a field X-Filler of N bytes", number(maxMemory, func(s *step) *int64 { return &s.answer.headSize })},
	{"early", "1xx", "an informational response first", early},
	{"early-count", "N", "so many of them", number(10_000, func(s *step) *int64 { return &s.answer.earlyCount })},
	{"early-size", "N", "with a field of N bytes in each", number(maxMemory, func(s *step) *int64 { return &s.answer.earlySize })},

	{"delay", "DURATION", "before the head", duration(func(s *step) *time.Duration { return &s.answer.delay })},
	{"head-drip", "DURATION", "after each byte of the head (HTTP/1.1; h2fault: in CONTINUATION frames)",
		duration(func(s *step) *time.Duration { return &s.answer.headDrip })},
	{"drip", "BYTES@DURATION", "so much of the body, then a pause", drip},
	{"stall", "N", "silence after N body bytes, until the client leaves",
		number(maxNumber, func(s *step) *int64 { return &s.answer.stall })},
	{"cut", "N", "broken off after N body bytes; without how: FIN in HTTP/1.1, RST_STREAM in HTTP/2",
		number(maxNumber, func(s *step) *int64 { return &s.answer.cut })},
	{"how", "fin|raw|rst", "how to break off; raw is FIN without TLS close_notify",
		choice(func(s *step) *string { return &s.answer.how }, howFin, howRaw, howRst)},

	{"chunked", "", "chunked (HTTP/1.1)", flag(func(s *step) *bool { return &s.answer.chunked })},
	{"no-length", "", "no Content-Length; in HTTP/1.1 ended by closing", flag(func(s *step) *bool { return &s.answer.noLength })},
	{"length", "N", "Content-Length says N", number(1<<62, func(s *step) *int64 { return &s.answer.length })},
	{"chunk-fault", "bad-size|no-last|bad-crlf|huge", "chunked, and broken after the body (HTTP/1.1)",
		choice(func(s *step) *string { return &s.answer.chunkFault }, chunkBadSize, chunkNoLast, chunkBadCRLF, chunkHuge)},
	{"trailers", "", "a trailer field X-Trailer", flag(func(s *step) *bool { return &s.answer.trailers })},
	{"close", "", "Connection: close (HTTP/1.1)", flag(func(s *step) *bool { return &s.answer.closing })},
	{"unread", "", "answers without reading the request body (HTTP/1.1: and closes)",
		flag(func(s *step) *bool { return &s.answer.unread })},
}

var breakParams = []param{
	{"at", "accept-body|before-head|in-head|in-body", "when; default before-head",
		choice(func(s *step) *string { return &s.at }, atAcceptBody, atBeforeHead, atInHead, atInBody)},
	{"after", "N", "after N bytes of the request body (accept-body) or of the body (in-body); default 0",
		number(maxNumber, func(s *step) *int64 { return &s.after })},
}

var h2ResetParams = []param{
	{"code", "N", "error code, default 0 (NO_ERROR)", code},
	{"at", "before-head|in-body", "when; default before-head",
		choice(func(s *step) *string { return &s.at }, atBeforeHead, atInBody)},
	{"after", "N", "after N bytes of the body", number(maxNumber, func(s *step) *int64 { return &s.after })},
}

var h2GoAwayParams = []param{
	{"code", "N", "error code, default 0 (NO_ERROR)", code},
	{"last", "N|this", "last stream taken care of, default 0", lastStream},
}

var h2BadFrameParams = []param{
	{"fault", "stream0|settings|oversize|hpack", "DATA on stream 0 (default), short SETTINGS, a frame over the limit, a bad header block",
		choice(func(s *step) *string { return &s.fault }, frameStream0, frameSettings, frameOversize, frameHPACK)},
}

var h2HugeHeadParams = []param{
	{"size", "N", "bytes of field values, default 16 MiB", number(maxMemory, func(s *step) *int64 { return &s.size })},
}

// stepKinds is every NAME of the grammar. It is constant.
var stepKinds = []stepKind{
	{name: statusKind, run: runStatus, params: statusParams,
		doc: "any three digits (200, 404, 099, 999): a response with that status"},
	{name: "reset", run: runReset, params: breakParams,
		doc: "the connection is reset (TCP RST; a plain close where there is no TCP)"},
	{name: "fin", run: runFin, params: breakParams,
		doc: "the connection is closed in order (FIN)"},
	{name: "close-idle", run: runCloseIdle, params: statusParams,
		doc: "200 with keep-alive; the next request on the same connection is read and the connection closed"},
	{name: "silent", run: runSilent,
		doc: "never answers, until the client leaves"},
	{name: "garbage", run: runGarbage,
		doc: "bytes that are not HTTP, then FIN"},
	{name: "half-head", run: runHalfHead,
		doc: "a status line and half a field, then silence (HTTP/1.1)"},
	{name: "bad-status-line", run: runBadStatusLine,
		doc: "a status line without a status (HTTP/1.1)"},
	{name: "bad-header", run: runBadHeader,
		doc: "a field line without a colon (HTTP/1.1)"},
	{name: "switch", run: runSwitch,
		doc: "101 Switching Protocols, then silence until the client leaves (HTTP/1.1)"},
	{name: "h2-rst", run: runH2Reset, params: h2ResetParams,
		doc: "RST_STREAM (listener h2fault)"},
	{name: "h2-goaway", run: runH2GoAway, params: h2GoAwayParams,
		doc: "GOAWAY; the stream is answered with 200 if LAST covers it, else left (listener h2fault)"},
	{name: "h2-goaway-forever", run: runH2GoAway, params: h2GoAwayParams,
		doc: "the same; as the only step it is met on every new connection (listener h2fault)"},
	{name: "h2-bad-frame", run: runH2BadFrame, params: h2BadFrameParams,
		doc: "a frame that breaks the protocol (listener h2fault)"},
	{name: "h2-huge-head", run: runH2HugeHead, params: h2HugeHeadParams,
		doc: "a header block in many CONTINUATION frames (listener h2fault)"},
}
