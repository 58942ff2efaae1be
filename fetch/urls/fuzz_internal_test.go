package urls

import (
	"errors"
	"strings"
	"testing"
)

// wantSendable checks what every URL that is sent has in common.
func wantSendable(t *testing.T, raw, sent string) {
	t.Helper()
	if len(sent) > MaxBytes {
		t.Errorf("%q becomes %d bytes", raw, len(sent))
	}
	if i := strings.IndexFunc(sent, func(r rune) bool { return r <= ' ' || r >= 0x7f }); i >= 0 {
		t.Errorf("%q becomes %q, which has to be encoded at %d", raw, sent, i)
	}
	again, err := Parse(sent)
	if err != nil {
		t.Fatalf("%q becomes %q, and that: %v", raw, sent, err)
	}
	if again.String() != sent {
		t.Errorf("%q becomes %q, and that %q", raw, sent, again)
	}
	if again.User != nil || again.Opaque != "" || strings.Contains(again.Hostname(), "%") {
		t.Errorf("%q becomes %q, with userinfo or a zone, or opaque", raw, sent)
	}
}

// FuzzParse checks that an accepted URL is canonical and can be sent as it is.
func FuzzParse(f *testing.F) {
	for _, raw := range []string{
		"http://example.com/", "HTTPS://EXAMPLE.com:0443/a/../b?q#f", "http://user:secret@host/", "http://[fe80::1%25eth0]/",
		"http://[2001:DB8::1]:80", "http://2130706433/", "http://0x7f.1/", "http://１２７.0.0.1/", "http://bücher.example/é%2F?é#é",
		"http://xn--bcher-kva.example/", "http://caf\xe9.example/", "http://a%25b/", "http:host", "//host/", "http://host:99999/",
		"http://h/\"<>\\^`{|}%20?\"<>\\^`{|}%20#\"<>\\^`{|}%20", "http://h?#", "http://a..b/", "http://א1a.example/", "http://h:/%00",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Parse(raw)
		if err != nil {
			if refused, ok := errors.AsType[*Error](err); !ok || refused.Reason == "" || refused.Remedy == "" {
				t.Errorf("Parse(%q): %v, want an Error with reason and remedy", raw, err)
			}
			return
		}
		wantSendable(t, raw, u.String())
	})
}

// FuzzIsPlain checks that the profile would not change a plain host.
func FuzzIsPlain(f *testing.F) {
	for _, host := range []string{"example.com", "a_b-.1", "-a.example", "a--b", "xn--a", "a.xn--bcher-kva", "Example.com", "", ".", "a..b", "1.2.3.4", "é"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if name, err := hostProfile.ToASCII(host); isPlain(host) && (err != nil || name != host) && IsHostName(host) {
			t.Errorf("%q is plain, but becomes %q, %v", host, name, err)
		}
	})
}

// FuzzMayBeLong checks that every URL that is too long may be long.
func FuzzMayBeLong(f *testing.F) {
	for _, raw := range []string{"http://h/\x00é%2f?é#é", "http://h/a%2Fé#%41é", "http://user:ü@h/", "http://h?", "http:"} {
		f.Add(raw, 3000)
		f.Add(raw, 1)
	}
	f.Fuzz(func(t *testing.T, raw string, times int) {
		if times < 1 || times > 1000 || len(raw)*times > 3*MaxBytes {
			return
		}
		u, err := parse(raw + strings.Repeat(raw, times))
		if err == nil && u.Opaque == "" && len(u.String()) > MaxBytes && !mayBeLong(u) {
			t.Errorf("%d bytes of %q are not measured", len(u.String()), raw)
		}
	})
}
