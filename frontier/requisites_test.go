package frontier

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
)

// needful serves documents by host and target, such as "a/x/1". {b} is the origin of host b.
func needful(t *testing.T, documents map[string]string) *rig {
	t.Helper()
	var r *rig
	r = discoverRig(t, site.Config{Page: func(host, target string) site.Page {
		host = strings.TrimSuffix(host, ".demo.test")
		body, found := documents[host+target]
		kind := html
		switch {
		case !found:
			return site.Page{}
		case strings.Contains(target, "css"):
			kind = "text/css"
		case strings.Contains(target, "img"):
			kind = "image/png"
		}
		for _, other := range []string{"a", "b", "c"} {
			body = strings.ReplaceAll(body, "{"+other+"}", strings.TrimSuffix(r.site.URL(other, "/"), "/"))
		}
		return site.Page{Type: kind, Body: body, Header: map[string]string{"ETag": `"1"`}}
	}}, scope.Host, "a/x/1")
	r.config.Requisites = new(Requisites)
	return r
}

// hostPaths returns the requests in order, without robots.txt.
func (r *rig) hostPaths() string {
	return strings.ReplaceAll(strings.Join(r.paths(), " "), ".demo.test/x", "")
}

// TestRequisites checks which requisites are fetched, and in which order (F67).
func TestRequisites(t *testing.T) {
	t.Parallel()
	page := func(body string) map[string]string {
		return map[string]string{"a/x/1": body, "a/x/2": "<p>", "a/x/img1": "i", "a/x/img2": "i", "a/x/css": "@import 'css2';a{b:url(img1)}", "a/x/css2": "@import 'css';a{b:url({b}/x/img)}", "b/x/img": "i",
			"b/x/frame": "<a href=no><img src=img><iframe src={c}/x/frame></iframe>", "c/x/frame": "<img src=img>", "c/x/img": "i"}
	}
	for _, row := range []struct {
		name   string
		body   string
		change func(*rig)
		want   string // of each host in order
		found  Found
	}{
		{"before the links of a page", `<a href=2><img src=img1><a href=3>`, nil, "a/1 a/img1 a/2 a/3", Found{Links: 2, Added: 2, Requisites: 1}},
		{"through style sheets, which are a ring, on another host", `<link rel=stylesheet href=css>`, nil, "a/1 a/css a/css2 a/img1 b/img", Found{Requisites: 4}},
		{"frames out of the scope", `<iframe src={b}/x/frame></iframe>`, nil, "a/1 b/frame b/img c/frame c/img", Found{Links: 1, OutOfScope: 1, Requisites: 4}},
		{"a frame in the scope", `<iframe src=2></iframe><a href=2><a href=3>`, nil, "a/1 a/2 a/3", Found{Links: 2, Added: 1, Requisites: 1}},
		{"not wanted", `<img src=img1><a href=2>`, func(r *rig) { r.config.Requisites = nil }, "a/1 a/2", Found{Links: 1, Added: 1}},
		{"excluded", `<img src=img1><img src=img2>`, func(r *rig) {
			s, err := scope.New(scope.Config{By: scope.Host, Places: []string{"a"}, Exclude: []string{"img1"}})
			must(r, err)
			r.config.Discovery.Scope = s
		}, "a/1 a/img2", Found{Requisites: 1, Excluded: 1}},
		{"neither depth nor include count", `<img src=img1><a href=2>`, func(r *rig) {
			s, err := scope.New(scope.Config{By: scope.Host, Places: []string{"a"}, Include: []string{"/x/1$"}})
			must(r, err)
			r.config.Discovery.Scope, r.config.Discovery.MaxDepth = s, 0
		}, "a/1 a/img1", Found{Requisites: 1}},
		{"the limit of a host does not count", `<img src=img1><img src=img2><a href=2>`, func(r *rig) { r.config.Discovery.Limits.URLsPerHost = 1 }, "a/1 a/img1 a/img2", Found{Links: 1, OverHost: 1, Requisites: 2}},
		{"that of the frontier does", `<img src=img1><img src=img2>`, func(r *rig) { r.config.Discovery.Limits.URLs = 2 }, "a/1 a/img1", Found{Over: 1, Requisites: 1}},
		{"that of hosts of requisites", `<img src={b}/x/img><img src={c}/x/img>`, func(r *rig) { r.config.Requisites.MaxHosts = 1 }, "a/1 b/img", Found{Requisites: 1, OverRequisiteHosts: 1}},
		{"a link and a requisite", `<a href=img1><img src=img1>`, nil, "a/1 a/img1", Found{Links: 1, Requisites: 1}},
		{"without a crawl", `<a href=2><img src=img1>`, func(r *rig) { r.config.Discovery = nil }, "a/1 a/img1", Found{Requisites: 1}},
		{"longer than the limit of pages", `<img src=img1>`, func(r *rig) { r.config.MaxBodyBytes = 20 }, "a/1 a/img1", Found{Requisites: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			documents := page(row.body)
			documents["a/x/img1"] = strings.Repeat("i", 30)
			r := needful(t, documents)
			if row.change != nil {
				row.change(r)
			}
			w := r.worker()
			must(t, w.Run(t.Context()))
			got := strings.Fields(r.hostPaths())
			slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
			if text := strings.Join(got, " "); text != row.want {
				t.Errorf("requests %s\nwant %s", text, row.want)
			}
			if diff := cmp.Diff(row.found, w.Found()); diff != "" {
				t.Error(diff)
			}
			for _, rec := range r.records {
				if rec.Status != "fetched" && !strings.HasSuffix(rec.URL, "/3") {
					t.Errorf("%s is %s: %s", rec.URL, rec.Status, rec.LastError)
				}
			}
		})
	}
}

// TestManyRequisites checks the limits of a page, which it says.
func TestManyRequisites(t *testing.T) {
	t.Parallel()
	var hosts, images strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&hosts, "<img src=http://h%d.test/>", i)
		fmt.Fprintf(&images, "<img src=img%d>", i)
	}
	deep := map[string]string{"a/x/1": "<link rel=stylesheet href=css1>"}
	for i := range 9 {
		deep[fmt.Sprintf("a/x/css%d", i+1)] = fmt.Sprintf("@import 'css%d'", i+2)
	}
	for _, row := range []struct {
		name      string
		documents map[string]string
		page      string // whose error says it
		want      string
		n         int64
	}{
		{"hosts", map[string]string{"a/x/1": hosts.String()}, "/x/1", "requisites left out: 950 beyond 50 other hosts of a page", 50},
		{"a style sheet has what the page has left", map[string]string{"a/x/1": "<link rel=stylesheet href=css>" + images.String(), "a/x/css": "a{b:url(x);c:url(y)}"}, "/x/1",
			"requisites left out: 1 beyond 1000 requisites of a page", 1000},
		{"and says it", map[string]string{"a/x/1": "<link rel=stylesheet href=css>" + strings.TrimPrefix(images.String(), "<img src=img0>"), "a/x/css": "a{b:url(x);c:url(y)}"}, "/x/css",
			"requisites left out: 2 beyond 1000 requisites of a page", 1000},
		{"hops", deep, "/x/css5", "requisites left out: 1 beyond 5 style sheets and frames from their page", 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := needful(t, row.documents)
			r.config.Policy.MaxURLRetries = 0
			w := r.worker()
			must(t, w.Run(t.Context()))
			if got := r.row(r.site.URL("a", row.page)).LastError; got != row.want || w.Found().Requisites != row.n {
				t.Errorf("%q, %d requisites", got, w.Found().Requisites)
			}
		})
	}
}

// TestRequisiteBecomesPage checks that a URL that is both is one row, which is searched for links once it is a page, and is
// fetched as a requisite once it is needed.
func TestRequisiteBecomesPage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		documents map[string]string
		want      string
	}{
		{"an image that answers HTML", map[string]string{"a/x/1": "<img src=2><a href=3>", "a/x/2": "<a href=4>", "a/x/3": "<a href=2>", "a/x/4": "<p>"}, "a/1 a/2 a/3 a/2 a/4"},
		{"an image is not sent again", map[string]string{"a/x/1": "<img src=img><a href=3>", "a/x/img": "i", "a/x/3": "<a href=img>"}, "a/1 a/img a/3 a/img"},
		{"an image that is a style sheet", map[string]string{"a/x/1": "<img src=css><a href=2>", "a/x/css": "a{b:url(img)}", "a/x/img": "i", "a/x/2": "<link rel=stylesheet href=css>"}, "a/1 a/css a/2 a/css a/img"},
		{"a page that is no HTML", map[string]string{"a/x/1": "<a href=img><a href=3>", "a/x/img": "i", "a/x/3": "<img src=img>"}, "a/1 a/img a/3 a/img"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := needful(t, row.documents)
			r.crawl()
			if got := r.hostPaths(); got != row.want {
				t.Errorf("requests %s\nwant %s", got, row.want)
			}
			for u, err := range r.store.URLs(t.Context()) {
				if must(t, err); u.Status != store.Fetched || u.Kind != store.Page && !strings.Contains(row.name, "style sheet") {
					t.Errorf("%s is a %s, %s: %s", u.URL, u.Kind, u.Status, u.LastError)
				}
			}
		})
	}
}

// TestRedirectedRequisites checks that redirects lead requisites to no more hosts than their limits permit.
func TestRedirectedRequisites(t *testing.T) {
	t.Parallel()
	r := needful(t, map[string]string{"a/x/1": "<img src={a}/go/302/1?to={b}/x/img><img src={a}/go/302/2?to={c}/x/img>", "b/x/img": "i", "c/x/img": "i"})
	r.config.Requisites.MaxHosts = 1
	r.crawl()
	if got := r.hostPaths(); !strings.Contains(got, "b/img") || strings.Contains(got, "c/img") {
		t.Errorf("requests %s", got)
	}
	for u, err := range r.store.URLs(t.Context()) {
		if must(t, err); strings.Contains(u.URL, "/go/302/2") && u.ErrorClass != ClassOutOfScope {
			t.Errorf("%s is %s: %s", u.URL, u.Status, u.LastError)
		}
	}
}

// TestReferrer checks the Referer, as browsers send it.
func TestReferrer(t *testing.T) {
	t.Parallel()
	for _, row := range [][3]string{
		{"http://a.test/x?y", "http://a.test/z", "http://a.test/x?y"},
		{"http://a.test/x", "http://a.test:81/", "http://a.test/"},
		{"http://a.test/x", "https://a.test/", "http://a.test/"},
		{"https://a.test/x", "https://b.test/", "https://a.test/"},
		{"https://a.test/x", "http://a.test/", ""},
		{"", "http://a.test/", ""},
		{"http://a.test/" + strings.Repeat("x", 4083), "http://a.test/", "http://a.test/"},
	} {
		if got := referrer(row[0], row[1]); got != row[2] {
			t.Errorf("from %s to %s: %q, want %q", row[0], row[1], got, row[2])
		}
	}
}
