package conns

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"
	"testing"
	"time"
)

// encode returns a name and its encoding.
func encode(t *testing.T, n pkix.Name) (pkix.Name, []byte) {
	t.Helper()
	raw, err := asn1.Marshal(n.ToRDNSequence())
	if err != nil {
		t.Fatal(err)
	}
	return n, raw
}

// TestDescribe checks that the names of a certificate are short and printable, whatever the origin sends.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		in   pkix.Name
		want string
	}{
		{"usual", pkix.Name{CommonName: "origin.example", Organization: []string{"Example, Inc."}, Country: []string{"NZ"}}, `CN=origin.example,O=Example\, Inc.,C=NZ`},
		{"none", pkix.Name{}, ""},
		{"not ASCII", pkix.Name{CommonName: "größe"}, "CN=größe"},
		{"control characters", pkix.Name{CommonName: "a\r\n\x1b[31mb\u202e"}, `CN=a\r\n\x1b[31mb\u202e`},
		{"long", pkix.Name{CommonName: strings.Repeat("a", 300)}, "CN=" + strings.Repeat("a", MaxNameBytes-6) + "…"},
		{"so long that it is not formatted", pkix.Name{CommonName: "origin.example", Organization: []string{strings.Repeat("o", maxParsedName)}}, "CN=origin.example"},
		{"of many parts", pkix.Name{Organization: strings.Split(strings.Repeat("o", 1000), "")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			name, raw := encode(t, row.in)
			end := time.Date(2030, time.January, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
			got := describe([]*x509.Certificate{{Subject: name, RawSubject: raw, Issuer: name, RawIssuer: raw, NotAfter: end, Raw: []byte("abc")}})
			want := Certificate{row.want, row.want, end.UTC(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
			if got != want {
				t.Errorf("%+v\nwant %+v", got, want)
			}
			if len(got.Subject) > MaxNameBytes {
				t.Errorf("%d bytes", len(got.Subject))
			}
		})
	}
	if got := describe(nil); got != (Certificate{}) {
		t.Errorf("no certificate: %+v", got)
	}
}
