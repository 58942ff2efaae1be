package fetch

import (
	"testing"

	"fetchd/fetch/urls"
)

// TestHostSet checks which URLs are those of a host.
func TestHostSet(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		host, url string
		want      bool
	}{
		{"*", "https://example.com/", true},
		{"example.com", "http://example.com/", true},
		{"example.com", "https://example.com:8443/", true},
		{"EXAMPLE.com", "http://Example.COM/", true},
		{"example.com.", "http://example.com/", true},
		{"example.com", "http://example.com./", true},
		{"example.com", "http://www.example.com/", false},
		{"example.com", "http://example.com.evil.example/", false},
		{"example.com:80", "http://example.com/", true},
		{"example.com:80", "https://example.com/", false},
		{"example.com:443", "https://example.com/", true},
		{"example.com:8080", "http://example.com:8080/", true},
		{"example.com:8080", "http://example.com/", false},
		{"bücher.example", "http://xn--bcher-kva.example/", true},
		{"192.0.2.7", "http://192.0.2.7:81/", true},
		{"[2001:DB8::1]", "http://[2001:db8:0::1]/", true},
		{"[2001:db8::1]:443", "https://[2001:db8::1]/", true},
		{"[2001:db8::1:443]", "https://[2001:db8::1]/", false},
	} {
		set, err := newHostSet([]string{"other.example", row.host})
		if err != nil {
			t.Errorf("%s: %v", row.host, err)
			continue
		}
		u, err := urls.Parse(row.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := set.has(u); got != row.want {
			t.Errorf("%s has %s: %t, want %t", row.host, row.url, got, row.want)
		}
	}
}
