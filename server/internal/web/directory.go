package web

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/fetch/auth/httpsig"
	"fetchd/internal/webapi"
	"fetchd/server/internal/conversion"
)

const (
	// directoryAge is how long a directory is served before it is made and signed again, so
	// that requests cost no signatures.
	directoryAge = 10 * time.Minute
	// directoryLifetime is how long its signatures are valid.
	directoryLifetime = 24 * time.Hour
)

// Directory serves the public keys of signers that publish them. The zero value serves none.
type Directory struct {
	mu     sync.Mutex
	agents map[string][]*httpsig.Key // by authority
	pages  map[string]*directoryPage
}

type directoryPage struct {
	made   time.Time
	header http.Header
	body   []byte
}

// Set replaces the providers whose signers are served.
func (d *Directory) Set(providers map[string]conversion.AuthProvider) {
	agents := make(map[string][]*httpsig.Key)
	for _, p := range providers {
		if s, ok := p.Provider.(interface {
			Published() (string, []*httpsig.Key)
		}); ok {
			if agent, keys := s.Published(); agent != "" {
				authority := canonicalHost(strings.TrimPrefix(agent, "https://"))
				agents[authority] = append(agents[authority], keys...)
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.agents, d.pages = agents, make(map[string]*directoryPage)
}

// canonicalHost returns a Host as @authority has it for https.
func canonicalHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }

// ServeHTTP serves the keys of the agent that the request names as Host. If there is only one agent, it
// serves them under other names too, but without a signature: it would say that the keys belong there.
func (d *Directory) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	page, err := d.page(canonicalHost(r.Host), time.Now())
	if err != nil {
		webapi.WriteStatus(rw, status.Newf(codes.Internal, "the directory of keys cannot be made"))
		return
	}
	if page == nil {
		webapi.WriteStatus(rw, status.Newf(codes.NotFound, "there is no directory of keys for this host: see http-signature in --origins-file"))
		return
	}
	maps.Copy(rw.Header(), page.header)
	r.Header.Del("Range") // the digest and the signature are those of the whole
	http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(page.body))
}

// page returns the page for a host, or nil if there is none.
func (d *Directory) page(host string, now time.Time) (*directoryPage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys, signed := d.agents[host]
	if !signed {
		if len(d.agents) != 1 {
			return nil, nil
		}
		host = "" // of all other hosts
		for _, only := range d.agents {
			keys = only
		}
	}
	if p := d.pages[host]; p != nil && now.Sub(p.made) < directoryAge {
		return p, nil
	}
	body, err := httpsig.Directory(keys, now)
	if err != nil {
		return nil, err
	}
	p := &directoryPage{made: now, body: body, header: http.Header{"Content-Type": {httpsig.DirectoryType},
		"Cache-Control": {fmt.Sprintf("max-age=%d", int(directoryAge.Seconds()))}}}
	if signed {
		fields, err := httpsig.SignDirectory(keys, body, host, now, directoryLifetime)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			p.header.Set(f.Name, f.Value)
		}
	}
	d.pages[host] = p
	return p, nil
}
