//go:build linux

package crawls

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKilledCrawl kills a crawl with fetches in flight on one host and on several, and resumes it: it goes on at once, and
// fetches nothing twice but what was in flight.
func TestKilledCrawl(t *testing.T) {
	for _, hosts := range []int{1, 13} {
		t.Run(fmt.Sprintf("%d hosts", hosts), func(t *testing.T) {
			ctx := long(t)
			var (
				mu      sync.Mutex
				asked   = make(map[string]int)
				waiting int
				first   = make(chan struct{}, 1000)
			)
			held, killed := make(chan struct{}), make(chan struct{})
			flags := []string{"crawl", "--db", filepath.Join(t.TempDir(), "frontier.db"), "--delay", "0s", "--egress-allow-cidr", "127.0.0.0/8"}
			var starts []string
			want := make(map[string]int)
			for range hosts {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/robots.txt" {
						http.NotFound(w, r)
						return
					}
					mu.Lock()
					asked[r.Host+r.URL.Path]++
					mu.Unlock()
					w.Header().Set("Content-Type", "text/html")
					switch r.URL.Path {
					case "/":
						_, _ = fmt.Fprint(w, `<a href="/held">h</a>`)
					case "/held":
						select {
						case <-killed:
							first <- struct{}{}
						default:
							mu.Lock()
							if waiting++; waiting == hosts {
								close(held)
							}
							mu.Unlock()
							<-killed
							return
						}
						_, _ = fmt.Fprint(w, `<a href="/last">l</a>`)
					default:
						_, _ = fmt.Fprint(w, r.URL.Path)
					}
				}))
				defer s.Close()
				port := portOf(t, s.URL)
				flags = append(flags, "--egress-allow-port", port)
				starts = append(starts, s.URL)
				want["127.0.0.1:"+port+"/"], want["127.0.0.1:"+port+"/held"], want["127.0.0.1:"+port+"/last"] = 1, 2, 1
			}
			crawl := start(t, "the crawl that is killed", "frontier", append(flags, starts...)...)
			select {
			case <-held:
			case <-ctx.Done():
				t.Fatal("not every host has a fetch in flight")
			}
			crawl.kill()
			<-crawl.Gone
			close(killed)
			began := time.Now()
			again := start(t, "the crawl that goes on", "frontier", append(flags, starts...)...)
			select {
			case <-first:
				t.Logf("the next request came after %s", time.Since(began))
			case <-ctx.Done():
				t.Fatal("the crawl does not go on")
			}
			again.exits(ctx, 0)
			again.wrote(ctx, fmt.Sprintf(`msg="URLs of workers that are gone are free again" urls=%d`, hosts))
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}
