package conns

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// splits are the ways to split the same bytes into reads.
var splits = map[string]func(string) []string{
	"at once":            func(s string) []string { return []string{s} },
	"byte by byte":       func(s string) []string { return strings.Split(s, "") },
	"line by line":       func(s string) []string { return strings.SplitAfter(s, "\n") },
	"after each CR":      func(s string) []string { return strings.SplitAfter(s, "\r") },
	"in pieces of seven": func(s string) []string { return pieces(s, 7) },
}

func pieces(s string, n int) []string {
	var all []string
	for p := range slices.Chunk([]byte(s), n) {
		all = append(all, string(p))
	}
	return all
}

// manyFields returns a head with n fields.
func manyFields(status string, n int) string {
	return "HTTP/1.1 " + status + "\r\n" + strings.Repeat("a:b\r\n", n) + "\r\n"
}

// TestPartialHead checks that an incomplete head is charged, however it is split, and
// that a head with too many fields is not read to its end.
func TestPartialHead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, sent string
		head       int // bytes up to the end of the final head; 0: there is none
		err        error
	}{
		{"CRLF", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 25, nil},
		{"bare LF", "HTTP/1.1 200 OK\nA: b\n\n", 22, nil},
		{"mixed line ends", "HTTP/1.1 200 OK\nA: b\r\nC: d\n\r\n", 29, nil},
		{"no field", "HTTP/1.1 204 No Content\r\n\r\n", 27, nil},
		{"no reason", "HTTP/1.1 200\r\n\r\n", 16, nil},
		{"a body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na\nb\nc", 38, nil},
		{"a body of many lines", manyFields("200 OK", 1) + strings.Repeat("\n", 2000), 24, nil},
		{"one informational head", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n", 62, nil},
		{"three informational heads", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3) + "HTTP/1.1 200 OK\r\n\r\n", 94, nil},
		{"an informational head with more blanks", "HTTP/1.1   100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 46, nil},
		{"512 fields", manyFields("200 OK", 512), 17 + 512*5 + 2, nil},
		{"513 fields", manyFields("200 OK", 513), 0, ErrFields},
		{"512 fields in each of two heads", manyFields("103 Early Hints", 512) + manyFields("200 OK", 512), 26 + 17 + 2*(512*5+2), nil},
		{"513 fields in an informational head", manyFields("103 Early Hints", 513), 0, ErrFields},
		{"513 fields after an informational head with more blanks", "HTTP/1.1  100 \r\n\r\n" + manyFields("200 OK", 513), 0, ErrFields},
		{"513 fields without end", strings.TrimSuffix(manyFields("200 OK", 513), "\r\n"), 0, ErrFields},
		{"a line without end", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 10_000), 0, nil},
		{"a head without end", "HTTP/1.1 200 OK\r\nA: b\r\n", 0, nil},
		{"nothing after 101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 48, nil},
		{"what follows 101", "HTTP/1.1 101 Switching Protocols\r\n\r\n" + strings.Repeat("x\n", 1000), 36, nil},
	} {
		for split, of := range splits {
			t.Run(row.name+", "+split, func(t *testing.T) {
				t.Parallel()
				checkPartialHead(t, of(row.sent), row.head, row.err)
			})
		}
	}
}

var endOfHead = regexp.MustCompile("\n\r?\n")

// checkPartialHead reads pieces whose final head ends after head bytes.
func checkPartialHead(t *testing.T, sent []string, head int, want error) {
	t.Helper()
	lease := budget.New(1 << 30).Lease("a")
	h := &partialHead{memory: lease}
	came := ""
	for _, piece := range sent {
		err := h.read([]byte(piece))
		complete := h.complete
		came += piece
		if err != nil {
			if !errors.Is(err, want) || want == nil {
				t.Errorf("%v after %d bytes, want %v", err, len(came), want)
			}
			break
		}
		if want := head > 0 && len(came) >= head; complete != want {
			t.Fatalf("complete %t after %d bytes of a head of %d", complete, len(came), head)
		}
		charged := int64(0)
		if !complete {
			rest := came
			for _, at := range endOfHead.FindAllStringIndex(came, -1) {
				rest = came[at[1]:]
			}
			charged = int64(len(rest)) + HeaderLineBytes*int64(strings.Count(rest, "\n"))
		}
		if held := lease.Held(budget.Receiving); held != charged {
			t.Fatalf("%d bytes are charged after %d, want %d", held, len(came), charged)
		}
		if strings.HasSuffix(came, "a:b\r\n\r\n") && want != nil && len(came) == len(strings.Join(sent, "")) {
			t.Errorf("no error, want %v", want)
		}
	}
	h.drop()
	if held := lease.Total(); held != 0 {
		t.Errorf("%d bytes are still charged", held)
	}
	if err := h.read([]byte("more\n")); !h.complete || err != nil || lease.Total() != 0 {
		t.Errorf("read after drop = %t, %v, with %d bytes charged", h.complete, err, lease.Total())
	}
}

// TestHeadBytes checks that a head has at most MaxHeadBytes, however it is split.
func TestHeadBytes(t *testing.T) {
	t.Parallel()
	const start, end = "HTTP/1.1 200 OK\r\nA: ", "\r\n\r\n"
	for _, row := range []struct {
		name, before string
		bytes        int
		err          error
	}{
		{"64 KiB", "", MaxHeadBytes, nil},
		{"one byte more", "", MaxHeadBytes + 1, errHeadBytes},
		{"64 KiB after an informational head", manyFields("103 Early Hints", 1), MaxHeadBytes, nil},
		{"one byte more after an informational head", manyFields("103 Early Hints", 1), MaxHeadBytes + 1, errHeadBytes},
	} {
		sent := row.before + start + strings.Repeat("x", row.bytes-len(start)-len(end)) + end
		for split, of := range splits {
			t.Run(row.name+", "+split, func(t *testing.T) {
				t.Parallel()
				var h partialHead
				var err error
				for _, piece := range of(sent) {
					if err = h.read([]byte(piece)); err != nil {
						break
					}
				}
				if !errors.Is(err, row.err) || (err == nil) != h.complete {
					t.Errorf("%v, complete: %t, want %v", err, h.complete, row.err)
				}
			})
		}
	}
}

// TestPartialHeadWithoutMemory expects an error from the read that exceeds the lease.
func TestPartialHeadWithoutMemory(t *testing.T) {
	t.Parallel()
	lease := budget.New(1600).Lease("a") // 1,200 for one
	h := &partialHead{memory: lease}
	for i, want := range []error{nil, nil, fault.OutOfMemory} {
		if err := h.read([]byte(strings.Repeat("x", 500))); !errors.Is(err, want) {
			t.Errorf("read %d = %v, want %v", i+1, err, want)
		}
	}
	if got := lease.Total(); got != 1000 {
		t.Errorf("%d bytes are charged, want the 1,000 that were granted", got)
	}
}

// FuzzPartialHead checks that a head is complete where net/http finds its end, however
// it is split, and that all its fields and bytes are counted before that.
func FuzzPartialHead(f *testing.F) {
	for _, sent := range []string{
		manyFields("200 OK", 2) + "body\n\n", manyFields("103 Early Hints", 1) + manyFields("200 OK", 1),
		manyFields("101 Switching Protocols", 1) + "x\n\n", "HTTP/1.1  100 \n\nHTTP/1.1 200 OK\r\n \r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\td\r\n\r\n", "HTTP/1.0 199\n\nHTTP/1.1 200\n\n", "\r\r\n\r\n", "HTTP/1.1 +10 x\r\n\r\n\r\n",
		manyFields("200 OK", 513),
	} {
		f.Add([]byte(sent), uint8(1))
		f.Add([]byte(sent), uint8(250))
	}
	f.Fuzz(func(t *testing.T, sent []byte, size uint8) {
		whole, end, fieldsOver := headEnd(sent)
		lease := budget.New(1 << 40).Lease("a")
		h := &partialHead{memory: lease}
		n := 0
		for piece := range slices.Chunk(sent, int(size)+1) {
			err := h.read(piece)
			complete := h.complete
			if errors.Is(err, ErrFields) {
				if lines := bytes.Count(sent[:n+len(piece)], newline); lines <= MaxHeaderFields+1 {
					t.Errorf("refused after %d lines", lines)
				}
				return
			}
			n += len(piece)
			if whole != notKnown && complete != (whole == isWhole && n >= end) {
				t.Fatalf("complete %t after %d bytes, net/http finds the end at %d of %d, whole %v", complete, n, end, len(sent), whole)
			}
			if complete {
				if fieldsOver {
					t.Errorf("a head of more than %d fields is read to its end", MaxHeaderFields)
				}
				if got := lease.Total(); got != 0 {
					t.Errorf("%d bytes are charged for a head that is complete", got)
				}
				return
			}
		}
	})
}

// The results of net/http's parser.
const (
	isWhole  = "whole"
	isPart   = "part"
	notKnown = "not known" // net/http rejects the bytes
)

// headEnd parses the heads at the start of sent as net/http does. It returns the end of
// the final one, and reports whether any has too many fields.
func headEnd(sent []byte) (whole string, end int, tooMany bool) {
	below := bytes.NewReader(sent)
	r := bufio.NewReader(below)
	for {
		resp, err := http.ReadResponse(r, nil)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return isPart, 0, tooMany
		}
		if err != nil {
			return notKnown, 0, tooMany
		}
		end = len(sent) - below.Len() - r.Buffered()
		_ = resp.Body.Close()
		tooMany = tooMany || Fields(resp.Header) > MaxHeaderFields
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return isWhole, end, tooMany
		}
	}
}
