package hostile

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/classify"
	"fetchd/cmd/fetchctl/mcp"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/embed"
)

// tools is a client of the tools for language models, over a service in this network.
func tools(t *testing.T, e fetch.Egress, ignoreRobots bool) *sdk.ClientSession {
	t.Helper()
	conn, stop, err := embed.Start(server.Config{Fetch: fetch.Config{Egress: e, Resolver: fetch.Resolver(nameServer)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	near, far := sdk.NewInMemoryTransports()
	ended, err := mcp.New(mcp.Config{Service: pb.NewFetchServiceClient(conn), IgnoreRobots: ignoreRobots}).Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(); _ = ended.Wait() })
	return session
}

// checkTool fetches through the tool, and compares the result and the kernel's count of connections
// with w.
func checkTool(t *testing.T, s *sdk.ClientSession, u string, w want) {
	t.Helper()
	before := opened(t)
	result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "fetch", Arguments: map[string]any{"url": u}})
	if err != nil {
		t.Fatalf("%s: %v", u, err)
	}
	began := opened(t) - before
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	class := w.class.String()
	if result.IsError != (w.class != none) || w.class != none && w.class != classify.InvalidRequest && !strings.Contains(string(text), class) {
		t.Errorf("%s: error %t, want class %s:\n%s", u, result.IsError, class, text)
	}
	if began != w.exchanges {
		t.Errorf("%s: %d connections opened, want %d to the origin and no other", u, began, w.exchanges)
	}
}

// testTools fetches the targets of the other tests as a language model that an attacker has
// persuaded. With the first session the origin is asked for its robots.txt too.
func (r *rig) testTools(t *testing.T) {
	allow := fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix(permitted + "/32")}, AllowPorts: []uint16{extraPort}}
	polite, open, zero := tools(t, allow, false), tools(t, allow, true), tools(t, fetch.Egress{}, true)
	forbidden := want{class: classify.TargetBlocked}
	for _, row := range addresses {
		t.Run(row.name, func(t *testing.T) {
			host := row.addr
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			for _, u := range []string{"http://" + host + "/", "https://" + host + "/", "http://" + host + ":22/", fmt.Sprintf("http://%s:%d/", host, extraPort)} {
				checkTool(t, polite, u, forbidden)
				checkTool(t, zero, u, forbidden)
			}
		})
	}
	for _, row := range spellings {
		t.Run(row.name, func(t *testing.T) {
			if row.class == none {
				checkTool(t, open, row.url, want{exchanges: 1})
				return
			}
			checkTool(t, polite, row.url, want{class: row.class})
		})
	}
	checkTool(t, polite, "http://"+permitted+"/", want{exchanges: 2}) // robots.txt and the page
	for i, row := range nameRows {
		if row.want.class == classify.DNSNotFound || row.want.class == classify.DNSFailure {
			continue // their retries wait
		}
		t.Run("name: "+row.name, func(t *testing.T) {
			raw := row.url
			if raw == "" {
				raw = "http://{name}/"
			}
			name := fmt.Sprintf("tool%d.test", i)
			r.dns.Set(name, row.host)
			s := open
			if row.zero {
				s = zero
			}
			checkTool(t, s, strings.NewReplacer("{name}", name, "{NAME}", strings.ToUpper(name)).Replace(raw), row.want)
		})
	}
	for _, row := range redirects {
		if row.method != "" {
			continue // a model chooses no method
		}
		t.Run("redirect: "+row.name, func(t *testing.T) {
			checkTool(t, open, row.first(t).String(), row.want())
		})
	}
}
