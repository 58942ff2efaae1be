//go:build linux

package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fetchd/test/need"

	"github.com/chromedp/chromedp"
)

// Rules of axe-core.
const (
	everyRule    = `['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']`
	contrastRule = `{ type: 'rule', values: ['color-contrast'] }`
)

// axe returns a function that checks the page in a state by rules of axe-core, of which at least a
// number must apply. FETCHD_NODE_MODULES is the folder node_modules of package-lock.json.
func (p *page) axe() func(state, rules string, least int) {
	p.Helper()
	folder := os.Getenv("FETCHD_NODE_MODULES")
	if folder == "" {
		need.Missing(p, "run .ci/run console", "FETCHD_NODE_MODULES is not set")
	}
	source, err := os.ReadFile(filepath.Join(folder, "axe-core/axe.min.js"))
	if err != nil {
		p.Fatal(err)
	}
	eval[bool](p, string(source)+"; true")
	return func(state, rules string, least int) {
		p.Helper()
		faults := eval[[]string](p, `axe.run(document, { resultTypes: ['violations'], elementRef: false, runOnly: `+rules+` }).then((r) => {
			if (r.passes.length < `+fmt.Sprint(least)+`) throw new Error('only ' + r.passes.length + ' rules passed');
			return r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target.join(' ') + ': ' + n.failureSummary));
		})`)
		for _, fault := range faults {
			p.Errorf("%s: %s", state, fault)
		}
	}
}

// TestAxe checks the console in each width and scheme.
func TestAxe(t *testing.T) {
	p := open(t)
	check := p.axe()
	p.do(chromedp.EmulateViewport(390, 844))
	check("the empty page", everyRule, 20)
	p.set("redirects-max", "20")
	p.header("X-A", "b")
	p.run(p.origin.URL("https", "/r/axe/302/9/503/200:type=application%2Fjson,body=%7B%22a%22%3A1%7D"))
	p.press(".row-label button")
	p.press(".fold button")
	p.unfold()
	p.set("total", "5") // a field error
	for _, width := range []int64{1280, 390, 320} {
		p.do(chromedp.EmulateViewport(width, 844))
		check(fmt.Sprintf("%d px, light", width), everyRule, 20)
		p.scheme("dark", "reduce")
		check(fmt.Sprintf("%d px, dark", width), contrastRule, 1) // the other rules do not depend on the scheme
		p.scheme("light", "reduce")
	}
}
