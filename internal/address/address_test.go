package address_test

import (
	"fmt"
	"strings"
	"testing"

	"fetchd/internal/address"
)

// TestParse checks the forms that every client takes.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text, target string
		security     address.Security
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", address.Unsaid},
		{"fetchd.example:8080", "fetchd.example:8080", address.Unsaid},
		{"[::1]:8080", "[::1]:8080", address.Unsaid},
		{"[fe80::1%eth0]:8080", "[fe80::1%eth0]:8080", address.Unsaid},
		{"http://127.0.0.1:8080", "127.0.0.1:8080", address.Plaintext},
		{"http://[::1]:8080/", "[::1]:8080", address.Plaintext},
		{"http://[::1]", "[::1]:80", address.Plaintext},
		{"http://fetchd.example", "fetchd.example:80", address.Plaintext},
		{"HTTPS://fetchd.example:8443", "fetchd.example:8443", address.TLS},
		{"https://fetchd.example/", "fetchd.example:443", address.TLS},
		{"dns:///fetchd.example:8080", "dns:///fetchd.example:8080", address.Unsaid},
		{"dns://9.9.9.9/fetchd.example:8080", "dns://9.9.9.9/fetchd.example:8080", address.Unsaid},
		{"dns:fetchd.example:8080", "dns:fetchd.example:8080", address.Unsaid},
		{"ipv4:10.0.0.1:8080,10.0.0.2:8080", "ipv4:10.0.0.1:8080,10.0.0.2:8080", address.Unsaid},
		{"unix:///run/fetchd.sock", "unix:///run/fetchd.sock", address.Unsaid},
		{"passthrough:///127.0.0.1:8080", "passthrough:///127.0.0.1:8080", address.Unsaid},
	} {
		t.Run(row.text, func(t *testing.T) {
			t.Parallel()
			got, err := address.Parse(row.text)
			if want := (address.Address{Target: row.target, Security: row.security}); got != want || err != nil {
				t.Errorf("Parse: %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// TestParseFails checks that an error says what is wrong and what to give.
func TestParseFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, says string }{
		{"", "the host is missing"},
		{":8080", "the host is missing"},
		{"http://", "the host is missing"},
		{"fetchd.example", "the port is missing"},
		{"dns:///fetchd.example", "the port is missing"},
		{"dns:///", "the host is missing"},
		{"::1", "an IPv6 address needs brackets"},
		{"::1:8080", "an IPv6 address needs brackets"},
		{"fetchd.example:8080:1", "an IPv6 address needs brackets"},
		{"[::1]", "the port is missing"},
		{"[fetchd.example]:8080", "the host is not valid"},
		{"[::1:8080", "the host is not valid"},
		{"127.0.0.1:http", `the port is "http", not a number from 1 to 65535`},
		{"http://127.0.0.1:0", `the port is "0"`},
		{"http://127.0.0.1:", `the port is ""`},
		{"127.0.0.1:65536", `the port is "65536"`},
		{"127.0.0.1:+80", `the port is "+80"`},
		{"http://127.0.0.1:8080/v1/fetch", `"/v1/fetch" follows the host and the port`},
		{"127.0.0.1:8080/", `"/" follows`},
		{"https://fetchd.example?a=b", `"?a=b" follows`},
		{"grpc://127.0.0.1:8080", "grpc:// is not a scheme of fetchd"},
		{"127.0.0.1 :8080", "the host is not valid"},
		{"http://user:secret@fetchd.example:8080", "has a user name or a password"},
	} {
		t.Run(row.text, func(t *testing.T) {
			t.Parallel()
			_, err := address.Parse(row.text)
			if err == nil {
				t.Fatal("no error")
			}
			text := fmt.Sprint(err)
			if !strings.Contains(text, row.says) || strings.Contains(text, "secret") {
				t.Errorf("Parse: %s; want %s", text, row.says)
			}
			if !strings.Contains(text, "@") && !strings.Contains(row.text, "@") && !strings.HasSuffix(text, ": give HOST:PORT, http://HOST:PORT, https://HOST:PORT for TLS, or dns:///HOST:PORT") {
				t.Errorf("Parse: %s; it does not say what to give", text)
			}
		})
	}
}
