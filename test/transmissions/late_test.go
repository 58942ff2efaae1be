package transmissions

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestLateAnswers fetches from an origin that sends a second answer some time after the first one, over
// HTTP/1.1. Every answer names its request. At most one fetch gets the answer to another one, if the
// origin has answered each before the next fetch begins. After the mark none does, even at once. The long
// form logs how many do before the mark if the next fetch begins at once.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	fetches, delays := 40, []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond}
	if long() {
		fetches, delays = 600, nil
		for d := range 11 {
			delays = append(delays, time.Duration(d)*time.Millisecond)
		}
	}
	for _, row := range []struct {
		name    string
		secure  *tls.Config
		never   []string
		atOnce  bool
		atMost  int
		inShort bool
	}{
		{"plain", nil, nil, false, 1, true},
		{"TLS", new(tls.Config), nil, false, 1, true},
		{"plain, at once", nil, nil, true, fetches, false},
		{"TLS, at once", new(tls.Config), nil, true, fetches, false},
		{"plain, never reused, at once", nil, []string{"127.0.0.1"}, true, 0, true},
		{"TLS, never reused, at once", new(tls.Config), []string{"127.0.0.1"}, true, 0, true},
	} {
		if !row.inShort && !long() {
			continue
		}
		for _, delay := range delays {
			t.Run(fmt.Sprintf("%s, %s", row.name, delay), func(t *testing.T) {
				answered := make(chan string, 4*fetches) // more than all attempts
				o := start(t, script{secure: row.secure, http1: func(c net.Conn, r request) bool {
					ok := answer1(c, r)
					answered <- r.path
					if !ok || !strings.HasPrefix(r.path, "/late/") {
						return ok
					}
					<-time.After(delay)
					return say(c, body(r, "/second"))
				}})
				client := newClient(t, func(cfg *fetch.Config) { cfg.NeverReuse = row.never })
				var before, after, failed, retried int
				for i := range fetches {
					path := fmt.Sprintf("/once/%d", i)
					if i%2 == 0 {
						path = fmt.Sprintf("/late/%d", i)
					}
					marked := client.Connections().Surplus > 0
					e := run(t.Context(), client, newRequest(t, classify.Standard, http.MethodGet, o.url+path))
					retried += e.Attempts - 1
					switch {
					case e.Kind != classify.Success:
						failed++
					case string(e.InlineBody) == path:
					case marked:
						after++
					default:
						before++
					}
					if !row.atOnce {
						for <-answered != path {
						}
					}
				}
				t.Logf("%d fetches over %d connections: %d wrong answers before the mark, %d after it, %d attempts were repeated", fetches, o.connections(), before, after, retried)
				if before > row.atMost || after > 0 || failed > 0 {
					t.Errorf("%d wrong answers before the mark, %d after it, %d fetches failed; want at most %d, 0, 0", before, after, failed, row.atMost)
				}
			})
		}
	}
}
