package main

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/internal/signkeys"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// TestCrawlSigned crawls a site of two https origins and one in plaintext, with the service inside and with another one. All
// requests to https origins are signed.
func TestCrawlSigned(t *testing.T) {
	t.Parallel()
	keys, err := signatures.Keys()
	must(t, err)
	dir := t.TempDir()
	key, ca := filepath.Join(dir, "key.json"), filepath.Join(dir, "ca.pem")
	must(t, os.WriteFile(key, []byte(signatures.JWKEd25519), 0o600))
	agent := "https://bot.example"
	for _, inside := range []bool{true, false} {
		t.Run(fmt.Sprintf("inside %t", inside), func(t *testing.T) {
			w := rig.NewWitness(t, keys["test-key-ed25519"], map[string]rig.WitnessPage{
				"/robots.txt":  {Type: "text/plain", Body: "User-agent: bot\nSitemap: ONE/sitemap.xml\n"},
				"/sitemap.xml": {Type: "application/xml", Body: `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>ONE/listed</loc></url></urlset>`},
				"/":            {Body: `<a href="/moved">1</a><a href="PLAIN/page">2</a>`},
				"/moved":       {To: "TWO/page"}, "/page": {Body: "page"}, "/listed": {Body: "listed"},
			})
			must(t, os.WriteFile(ca, w.CAPEM(), 0o600))
			args := []string{"crawl", "--db", filepath.Join(t.TempDir(), "crawl.db"), "--delay", "1ms", "--scope", "all", "--user-agent", "bot/1.0 (+https://bot.example/)", "--from", "bot@bot.example"}
			if inside {
				args = append(args, "--sign-key", key, "--sign-agent", agent, "--egress-allow-cidr", "127.0.0.0/8")
				for _, port := range w.Ports() {
					args = append(args, "--egress-allow-port", fmt.Sprint(port))
				}
			} else {
				providers, err := (&signkeys.Flags{SignKey: &key, SignAgent: &agent}).Providers()
				must(t, err)
				s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
					c.Fetch.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: w.Ports()}
					c.Fetch.RootCAs = x509.NewCertPool()
					c.Fetch.RootCAs.AppendCertsFromPEM(w.CAPEM())
					c.AuthProviders = map[string]server.AuthProvider{"bot": providers[signkeys.Name]}
				}})
				args = append(args, "--server", s.Addr)
				got := runWith(t.Context(), strings.NewReader(""), nil, append(args, "--identity", "other", w.One.URL+"/")...)
				if want := "frontier: --identity: " + s.Addr + ` has no auth provider "other": give the name of one in its --origins-file`; got.code != cli.ExitUsage || !strings.Contains(got.err, want) || len(w.Lines()) > 0 {
					t.Errorf("exit status %d, %q, requests %q; want %d and %q", got.code, got.err, w.Lines(), cli.ExitUsage, want)
				}
				args = append(args, "--identity", "bot")
			}
			cmd := exec.CommandContext(t.Context(), "frontier", append(args, w.One.URL+"/")...)
			cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
			out, err := cmd.CombinedOutput()
			want := []string{"one / signed", "one /listed signed", "one /moved signed", "one /robots.txt signed", "one /sitemap.xml signed",
				"plain /page unsigned", "plain /robots.txt unsigned", "two /page signed", "two /robots.txt signed"}
			if diff := cmp.Diff(want, w.Lines()); err != nil || diff != "" {
				t.Errorf("%v, requests (-want +got):\n%s\n%s", err, diff, out)
			}
			if n := strings.Count(string(out), "not covered by the auth provider"); n != 1 {
				t.Errorf("%d lines about origins that are not covered, want 1:\n%s", n, out)
			}
			if diff := cmp.Diff([]string{"bot@bot.example bot/1.0 (+https://bot.example/)"}, w.Senders()); diff != "" {
				t.Errorf("From and User-Agent (-want +got):\n%s", diff)
			}
			for _, secret := range append(w.Signatures(), "n4Ni-HpI", "sig1=") {
				if strings.Contains(string(out), secret) {
					t.Errorf("the output has %q:\n%s", secret, out)
				}
			}
		})
	}
}
