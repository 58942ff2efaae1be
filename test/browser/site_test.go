//go:build linux

package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// conformanceSite opens a tab for the pages that conformance/site makes of its test records. One of the clients is there
// many times, under long names too.
func conformanceSite(t *testing.T) *page {
	t.Helper()
	needBrowser(t)
	from, to := t.TempDir(), t.TempDir()
	if err := os.CopyFS(from, os.DirFS("../../conformance/site/testdata/results")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(from, "careless.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a-client-with-a-long-name", "AClientWithALongNameWithoutAPlaceToBreakIt", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		record["subject"] = name
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, fmt.Sprintf("more%d.json", i)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./conformance/site", "-out", to, from)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(to)))
	t.Cleanup(server.Close)
	p := &page{T: t, findings: new(findings), base: server.URL, path: "/"}
	p.expect("favicon.ico")
	p.browse()
	return p
}

// sitePages are a page of each kind.
var sitePages = []string{"index.html", "clients.html", "guards.html", "rules.html", "client-careless.html", "decide-decider.html", "guard-of-strings.html", "guard-told.html"}

// show opens a page and unfolds it.
func (p *page) show(name string) {
	p.Helper()
	p.do(chromedp.Navigate(p.base + p.path + name))
	eval[bool](p, `(document.querySelectorAll('details').forEach((d) => { d.open = true }), true)`)
}

// TestSiteNarrow checks that the pages do not scroll sideways, and that the first column and the first row of a table stay
// in view.
func TestSiteNarrow(t *testing.T) {
	p := conformanceSite(t)
	for _, width := range []int64{320, 360, 800, 1440} {
		p.do(chromedp.EmulateViewport(width, 700))
		for _, name := range sitePages {
			p.show(name)
			wide := eval[[]string](p, `[...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll > *, pre > *')
				&& e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.tagName + '.' + e.className + '#' + e.id)`)
			if got := eval[int64](p, `document.documentElement.scrollWidth`); got > width || len(wide) > 0 {
				t.Errorf("%s in a window of %d px is %d px wide; beyond the edge are %q", name, width, got, wide)
			}
			for _, fault := range eval[[]string](p, `[...document.querySelectorAll('.scroll')].flatMap((box) => {
				box.scrollTo(1e6, 1e6);
				const b = box.getBoundingClientRect(), at = (e) => e.getBoundingClientRect(), faults = [];
				const [corner, head, side] = ['thead th:first-child', 'thead th:last-child', 'tbody tr:last-child th'].map((s) => at(box.querySelector(s)));
				if (Math.abs(corner.left - b.left) > 2 || Math.abs(side.left - b.left) > 2) faults.push('the first column moves');
				if (Math.abs(corner.top - b.top) > 2 || Math.abs(head.top - b.top) > 2) faults.push('the first row moves');
				if (box.scrollWidth > box.clientWidth && side.width > b.width / 2) faults.push('the first column has ' + side.width + ' px of ' + b.width);
				return faults;
			})`) {
				t.Errorf("%s in a window of %d px: %s", name, width, fault)
			}
		}
	}
}

// TestSiteContrast computes the contrast of every text in both schemes.
func TestSiteContrast(t *testing.T) {
	p := conformanceSite(t)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme, "reduce")
		for _, name := range sitePages {
			p.show(name)
			for _, pale := range eval[[]string](p, contrast) {
				t.Errorf("%s, %s: %s", scheme, name, pale)
			}
		}
	}
}

// TestSiteAxe checks the pages by the rules of axe-core.
func TestSiteAxe(t *testing.T) {
	p := conformanceSite(t)
	p.do(chromedp.EmulateViewport(390, 844)) // the tables scroll
	for _, name := range sitePages {
		p.do(chromedp.Navigate(p.base + p.path + name))
		p.axe()(name, everyRule, 12)
	}
}

// TestSiteKeyboard checks that Tab reaches everything that can be pressed or scrolled, with a visible focus, and that Enter
// leads from a cell to its evidence.
func TestSiteKeyboard(t *testing.T) {
	p := conformanceSite(t)
	for _, name := range sitePages {
		p.do(chromedp.Navigate(p.base + p.path + name))
		want := eval[int](p, `(() => { const all = [...document.querySelectorAll('a, summary, .scroll')]; all.forEach((e, i) => { e.dataset.at = i }); return all.length })()`)
		if name == "rules.html" {
			want = min(want, 20) // they are all alike
		}
		var reached []string
		for range want {
			p.do(chromedp.KeyEvent(kb.Tab))
			got := eval[[]string](p, `(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
				return [e.dataset.at ?? e.tagName, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && r.bottom > 0 && r.top < innerHeight ? '' : 'not visible'] })()`)
			if got[1] != "" {
				t.Errorf("%s: the focus on element %s is %s", name, got[0], got[1])
			}
			reached = append(reached, got[0])
		}
		for i := range want {
			if at := fmt.Sprint(i); !slices.Contains(reached, at) {
				t.Errorf("%s: Tab does not reach %s", name, eval[string](p, `document.querySelector('[data-at="`+at+`"]').outerHTML`))
			}
		}
	}
	p.do(chromedp.Navigate(p.base + "/clients.html"))
	eval[bool](p, `(document.querySelector('a[href="client-careless.html#H1"]').focus(), true)`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`location.pathname === '/client-careless.html' && document.querySelector(':target')?.id === 'H1'`)
}
