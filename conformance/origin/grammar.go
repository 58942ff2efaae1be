package origin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The phases in which reset, fin and h2-rst break the exchange.
const (
	atAcceptBody = "accept-body"
	atBeforeHead = "before-head"
	atInHead     = "in-head"
	atInBody     = "in-body"
)

// lastThis is the value of LAST in h2-goaway that covers the current stream.
const lastThis = "this"

// stepKinds lists every NAME of the grammar. It is never changed.
var stepKinds = []stepKind{
	{statusKind, runStatus, statusParams,
		"any three digits (200, 404, 099, 999): a response with that status"},
	{"reset", runReset, breakParams,
		"the connection is reset (TCP RST; a plain close without TCP)"},
	{"fin", runFin, breakParams,
		"the connection is closed in order (FIN)"},
	{"close-idle", runCloseIdle, statusParams,
		"200 with keep-alive; the next request on the same connection is read, then the connection is closed"},
	{"silent", runSilent, noParams,
		"no answer until the client leaves"},
	{"garbage", runGarbage, noParams,
		"bytes that are not HTTP, then FIN"},
	{"half-head", rawThenSilence("HTTP/1.1 200 OK\r\nContent-Le"), noParams,
		"a status line and half a field, then silence (HTTP/1.1)"},
	{"bad-status-line", rawThenFin("HTTP/1.1 OKAY\r\nContent-Length: 0\r\n\r\n"), noParams,
		"a status line without a status (HTTP/1.1)"},
	{"bad-header", rawThenFin("HTTP/1.1 200 OK\r\nthis is no field\r\nContent-Length: 0\r\n\r\n"), noParams,
		"a field line without a colon (HTTP/1.1)"},
	{"switch", runSwitch, noParams,
		"101 Switching Protocols, then silence until the client leaves (HTTP/1.1)"},
	{"h2-rst", runH2Reset, h2ResetParams,
		"RST_STREAM (listener h2fault); with code 7 before the head the request is not logged, because it is not processed"},
	{"h2-goaway", runH2GoAway, h2GoAwayParams,
		"GOAWAY; the stream is answered with 200 if LAST covers it, otherwise never, and its request is not logged (listener h2fault)"},
	{"h2-goaway-forever", runH2GoAway, h2GoAwayParams,
		"the same; as the only step it applies to every new connection (listener h2fault)"},
	{"h2-bad-frame", runH2BadFrame, h2BadFrameParams,
		"a frame that breaks the protocol (listener h2fault)"},
	{"h2-huge-head", runH2HugeHead, h2HugeHeadParams,
		"a header block in many CONTINUATION frames (listener h2fault)"},
}

func noParams(*step) []param { return nil }

// statusParams returns the parameters of STATUS and close-idle.
func statusParams(s *step) []param {
	a := &s.answer
	return []param{
		{"size", "N", "body of N seeded bytes", number(maxNumber, &a.size)},
		{"offset", "N", "the seeded bytes start at N", number(maxNumber, &a.offset)},
		{"body", "TEXT", "body as given", optional(&a.text)},
		{"charset-bytes", "latin1|badutf8", "text body in ISO-8859-1, or with invalid UTF-8", choice(&a.charset, "latin1", "badutf8")},
		{"bomb", "N", "body of N zero bytes", number(maxNumber, &a.bomb)},
		{"echo", "", "body is the request as received, in JSON", flag(&a.echo)},
		{"coding", "gzip|deflate|rawdeflate|br|zstd", "content coding, really applied; rawdeflate is announced as deflate",
			choice(&a.coding, "gzip", "deflate", "rawdeflate", "br", "zstd")},
		{"coding-cut", "N", "only the first N coded bytes, framed as if they were all", number(maxNumber, &a.codingCut)},
		{"coding-lie", "NAME", "Content-Encoding says NAME, but the bytes are not in that coding", text(&a.codingLie)},

		{"type", "TYPE|none", "Content-Type", optional(&a.contentType)},
		{"etag", "VALUE", "ETag, raw", text(&a.etag)},
		{"last-modified", "VALUE", "Last-Modified, raw", text(&a.lastModified)},
		{"cond", "", "304 if If-None-Match or If-Modified-Since matches etag or last-modified", flag(&a.cond)},
		{"range", "", "206 to one byte range (416 if outside), unless If-Range differs from etag or last-modified", flag(&a.ranges)},
		{"require", "NAME[=VALUE]", "401 unless the request has that field", text(&a.require)},
		{"header", "NAME=VALUE", "any field, raw", s.anyField},
		{"set-cookie", "VALUE", "Set-Cookie, raw", s.field("Set-Cookie")},
		{"to", "LOCATION", "Location, raw; absent without it, empty with to=", s.field("Location")},
		{"retry-after-date", "SECONDS", "Retry-After: a date that many seconds from now", s.dateField("Retry-After")},
		{"retry-after", "VALUE", "Retry-After, raw", s.field("Retry-After")},
		{"form", "imf|rfc850|asctime", "format of the dates computed from SECONDS", choice(&a.form, "imf", "rfc850", "asctime")},
		{"date", "VALUE|none", "Date, raw", optional(&a.date)},
		{"date-offset", "SECONDS", "Date that many seconds from now", seconds(&a.dateAfter)},
		{"head-size", "N", "a field X-Filler of N bytes", number(maxMemory, &a.headSize)},
		{"early", "1xx", "an informational response first", early(&a.early)},
		{"early-count", "N", "number of informational responses", number(10_000, &a.earlyCount)},
		{"early-size", "N", "a field of N bytes in each informational response", number(maxMemory, &a.earlySize)},

		{"delay", "DURATION", "pause before the head", duration(&a.delay)},
		{"version", "N.N", "HTTP/N.N in the status line (HTTP/1.1): 0.9, 1.0, 1.2, 1.9, 2, 2.0, 3.0 or 9.9; the framing stays that of HTTP/1.1",
			choice(&a.version, "0.9", "1.0", "1.2", "1.9", "2", "2.0", "3.0", "9.9")},
		{"head-drip", "DURATION", "pause after each byte of the head (HTTP/1.1; h2fault: in CONTINUATION frames)", duration(&a.headDrip)},
		{"drip", "BYTES@DURATION", "pause after every BYTES of the body", drip(a)},
		{"stall", "N", "silence after N body bytes, until the client leaves", number(maxNumber, &a.stall)},
		{"cut", "N", "breaks off after N body bytes; without how: FIN in HTTP/1.1, RST_STREAM in HTTP/2", number(maxNumber, &a.cut)},
		{"how", "fin|raw|rst", "how to break off; raw is FIN without TLS close_notify", choice(&a.how, howFin, howRaw, howRst)},

		{"chunked", "", "chunked (HTTP/1.1)", flag(&a.chunked)},
		{"no-length", "", "no Content-Length; in HTTP/1.1 closing ends the body", flag(&a.noLength)},
		{"length", "N", "Content-Length says N", number(1<<62, &a.length)},
		{"chunk-fault", "bad-size|no-last|bad-crlf|huge", "chunked, with framing that breaks after the body (HTTP/1.1)",
			choice(&a.chunkFault, chunkBadSize, chunkNoLast, chunkBadCRLF, chunkHuge)},
		{"trailers", "", "a trailer field X-Trailer", flag(&a.trailers)},
		{"close", "", "Connection: close (HTTP/1.1)", flag(&a.closing)},
		{"unread", "", "answers without reading the request body (HTTP/1.1: then closes)", flag(&a.unread)},
	}
}

func breakParams(s *step) []param {
	return []param{
		{"at", "accept-body|before-head|in-head|in-body", "when; default before-head",
			choice(&s.at, atAcceptBody, atBeforeHead, atInHead, atInBody)},
		{"after", "N", "after N bytes of the request body (accept-body) or of the response body (in-body); default 0",
			number(maxNumber, &s.after)},
	}
}

func h2ResetParams(s *step) []param {
	return []param{
		{"code", "N", "error code, default 0 (NO_ERROR)", s.setCode},
		{"at", "before-head|in-body", "when; default before-head", choice(&s.at, atBeforeHead, atInBody)},
		{"after", "N", "after N bytes of the body", number(maxNumber, &s.after)},
	}
}

func h2GoAwayParams(s *step) []param {
	return []param{
		{"code", "N", "error code, default 0 (NO_ERROR)", s.setCode},
		{"last", "N|this", "last stream that is answered, default 0", s.setLast},
	}
}

func h2BadFrameParams(s *step) []param {
	return []param{
		{"fault", "stream0|settings|oversize|hpack",
			"DATA on stream 0 (default), SETTINGS that is too short, a frame over the limit, a bad header block",
			choice(&s.fault, frameStream0, frameSettings, frameOversize, frameHPACK)},
	}
}

func h2HugeHeadParams(s *step) []param {
	return []param{{"size", "N", "bytes of field values, default 16 MiB", number(maxMemory, &s.size)}}
}

// param is one parameter of a step.
type param struct {
	name   string
	syntax string
	doc    string
	set    setter
}

func findKind(name string) *stepKind {
	if len(name) == 3 && strings.Trim(name, "0123456789") == "" {
		name = statusKind
	}
	for i := range stepKinds {
		if stepKinds[i].name == name {
			return &stepKinds[i]
		}
	}
	return nil
}

// setter parses the value of a parameter and stores it in the step.
type setter func(value string) error

// number stores a size or a count of 0 to limit.
func number(limit int64, target *int64) setter {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > limit {
			return fmt.Errorf("%w: want a number from 0 to %d", errGrammar, limit)
		}
		*target = n
		return nil
	}
}

// text stores any string.
func text(target *string) setter {
	return func(value string) error {
		*target = value
		return nil
	}
}

// optional stores a string for which empty and absent differ.
func optional(target **string) setter {
	return func(value string) error {
		*target = &value
		return nil
	}
}

// flag turns a switch on. It accepts no value.
func flag(target *bool) setter {
	return func(value string) error {
		if value != "" {
			return fmt.Errorf("%w: takes no value", errGrammar)
		}
		*target = true
		return nil
	}
}

// choice stores one of the given words.
func choice(target *string, words ...string) setter {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("%w: want one of %s", errGrammar, strings.Join(words, ", "))
		}
		*target = value
		return nil
	}
}

// duration stores a Go duration such as 1.5s or 20ms.
func duration(target *time.Duration) setter {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%w: want a duration such as 20ms", errGrammar)
		}
		*target = d
		return nil
	}
}

// seconds stores a whole number of seconds, negative ones too.
func seconds(target *time.Duration) setter {
	return func(value string) error {
		const century = 100 * 366 * 24 * 3600
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < -century || n > century {
			return fmt.Errorf("%w: want seconds, within a century", errGrammar)
		}
		*target = time.Duration(n) * time.Second
		return nil
	}
}

// early stores the status of an informational response.
func early(target *int) setter {
	return func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 100 || n > 199 || n == http.StatusSwitchingProtocols {
			return fmt.Errorf("%w: want 100 or 102 to 199", errGrammar)
		}
		*target = n
		return nil
	}
}

// drip stores BYTES@DURATION, or BYTES/DURATION with an encoded slash.
func drip(a *answer) setter {
	return func(value string) error {
		count, every, ok := strings.Cut(value, "@")
		if !ok {
			count, every, _ = strings.Cut(value, "/")
		}
		if err := number(1<<20, &a.dripBytes)(count); err != nil {
			return fmt.Errorf("BYTES@DURATION or BYTES%%2FDURATION: %w", err)
		}
		if a.dripBytes == 0 {
			return fmt.Errorf("%w: a drip has at least one byte", errGrammar)
		}
		return duration(&a.dripEvery)(every)
	}
}

// field adds a field with a fixed name and a raw value.
func (s *step) field(name string) setter {
	return func(value string) error {
		s.answer.fields = append(s.answer.fields, fieldSpec{name: name, value: value})
		return nil
	}
}

// dateField adds a field whose value is a date that many seconds from now.
func (s *step) dateField(name string) setter {
	return func(value string) error {
		f := fieldSpec{name: name, dated: true}
		err := seconds(&f.after)(value)
		s.answer.fields = append(s.answer.fields, f)
		return err
	}
}

// anyField adds a field given as NAME=VALUE.
func (s *step) anyField(value string) error {
	name, value, ok := strings.Cut(value, "=")
	if !ok || name == "" {
		return fmt.Errorf("%w: want NAME=VALUE", errGrammar)
	}
	return s.field(name)(value)
}

// setCode stores an HTTP/2 error code, decimal or with 0x.
func (s *step) setCode(value string) error {
	n, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return fmt.Errorf("%w: want an error code", errGrammar)
	}
	s.code = uint32(n)
	return nil
}

// setLast stores a stream number or "this".
func (s *step) setLast(value string) error {
	if _, err := strconv.ParseUint(value, 10, 31); err != nil && value != lastThis {
		return fmt.Errorf("%w: want a stream number or %q", errGrammar, lastThis)
	}
	s.last = value
	return nil
}
