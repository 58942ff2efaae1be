package normal_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"fetchd/frontier/normal"
)

// FuzzNormalize checks the properties of every normal form.
func FuzzNormalize(f *testing.F) {
	for _, fact := range slices.Concat(hostFacts, pathFacts) {
		f.Add(fact.in)
	}
	f.Add("http://h//a?b&a")
	f.Add("http://h/\xe4%%32%65/%2e%2E/|^?\xff&%")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := normal.NormalizeURL(raw)
		if err != nil {
			return
		}
		if again, err := normal.NormalizeURL(got); err != nil || again != got {
			t.Errorf("Normalize(%q) = %q, whose normal form is %q, %v", raw, got, again, err)
		}
		if len(got) > normal.MaxURLBytes {
			t.Errorf("Normalize(%q) has %d bytes", raw, len(got))
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatalf("Normalize(%q) = %q, which net/url refuses: %v", raw, got, err)
		}
		// Split without a parser, so that no parser checks itself.
		_, rest, _ := strings.Cut(got, "://")
		authority, _, _ := strings.Cut(rest, "/")
		if u.Host != authority || u.User != nil || u.Fragment != "" || u.String() != got {
			t.Errorf("Normalize(%q) = %q, which net/url reads as %#v", raw, got, u)
		}
		host, err := normal.ExtractHost(got)
		if err != nil || host != authority || host != strings.ToLower(host) {
			t.Errorf("ExtractHost(%q) = %q, %v; want %q", got, host, err, authority)
		}
		for i := range len(got) {
			if got[i] <= ' ' || got[i] >= 0x7f {
				t.Fatalf("Normalize(%q) = %q has byte %#x", raw, got, got[i])
			}
		}
	})
}

func BenchmarkNormalizeURL(b *testing.B) {
	for _, row := range []struct{ name, in string }{
		{"plain", "https://www.alpha.test/docs/2026/page.html?id=42&lang=en"},
		{"escapes", "HTTP://Me@ALPHA.test.:80/a/./b/../%7euser%2f%c3%a9?q=%41%#top"},
		{"idna", "https://bücher.test/straße?q=é"},
		{"longest", "http://h/" + strings.Repeat("a", normal.MaxURLBytes-9)},
		{"longest user", "http://" + strings.Repeat("@", 1024) + "h/"},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := normal.NormalizeURL(row.in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
