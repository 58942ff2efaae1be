//go:build linux

package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// scheme sets the user's preferences for light or dark, and for motion.
func (p *page) scheme(colours, motion string) {
	p.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: motion}}})
}

// unfold opens every disclosure and shows the contents of every tool.
func (p *page) unfold() {
	p.Helper()
	p.click("link")
	p.click("as-python")
	p.until(`!document.getElementById('link-box').hidden && !document.getElementById('copy-box').hidden`)
	eval[bool](p, `(document.querySelectorAll('details').forEach((d) => { d.open = true }), document.getElementById('token-field').hidden = false, true)`)
}

// TestNarrow checks that the page does not scroll sideways.
func TestNarrow(t *testing.T) {
	p := open(t)
	for _, width := range []int64{320, 390, 640, 641, 900} {
		p.do(chromedp.EmulateViewport(width, 800))
		p.visit("")
		p.header("X-A-Header-With-A-Name-That-Goes-On", strings.Repeat("value", 30))
		p.run(p.origin.URL("https", "/r/n"+fmt.Sprint(width)+"/302/2/503/200:body="+strings.Repeat("x", 300)+",header=X-Long="+strings.Repeat("y", 300)))
		p.unfold()
		wide := eval[[]string](p, `[...document.querySelectorAll('body *')].filter((e) => !e.closest('.visually-hidden') && !e.closest('.scroll > *, .row-label > *')
			&& e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.tagName + '.' + e.className + '#' + e.id)`)
		if got := eval[int64](p, `document.documentElement.scrollWidth`); got > width || len(wide) > 0 {
			t.Errorf("in a window of %d px the page is %d px wide; beyond the edge are %q", width, got, wide)
		}
	}
}

// places returns the positions of everything that a user reads or presses, except messages
// about fields.
const places = `[...document.querySelectorAll('main input, main select, main textarea, main label, main legend, main summary, main button')]
	.filter((e) => e.checkVisibility()).map((e) => { const r = e.getBoundingClientRect(); return [e.id || e.textContent, r.x + scrollX, r.y + scrollY, r.width, r.height].join(' ') })`

// TestFieldErrors checks that messages about fields move nothing, and are visible if the field has
// the focus.
func TestFieldErrors(t *testing.T) {
	p := open(t)
	for _, width := range []int64{320, 800, 1180} {
		p.do(chromedp.EmulateViewport(width, 800))
		eval[bool](p, `(document.querySelectorAll('details').forEach((d) => { d.open = true }), true)`)
		for _, row := range []struct{ field, wrong, valid, says string }{
			{"attempts-max", "many", "3", "Give a whole number."},
			{"total", "5", "5s", "Give a time with its unit"},
			{"redirects-max", "few", "", "Give a whole number."},
			{"retry-after", "later", "1s", "Give a time with its unit"},
			{"multiplier", "x", "2", "Give a number."},
			{"labels", "a", "a=b", "Give labels as"},
			{"json", "{", "{}", "This is not JSON"},
		} {
			t.Run(fmt.Sprintf("%s at %d px", row.field, width), func(t *testing.T) {
				p := p.in(t)
				message := fmt.Sprintf(`document.getElementById('%s-wrong')`, row.field)
				eval[bool](p, fmt.Sprintf(`(document.getElementById(%q).focus(), true)`, row.field))
				before := eval[[]string](p, places)
				p.set(row.field, row.wrong)
				p.wantIn("#"+row.field+"-wrong", row.says)
				if got := eval[[]string](p, places); !slices.Equal(got, before) {
					t.Errorf("the message moves other elements: %s", moved(before, got))
				}
				if got := eval[string](p, `((r) => [r.left >= 0, r.right <= innerWidth, r.width > 40, r.height > 10].join())(`+message+`.getBoundingClientRect())`); got != "true,true,true,true" ||
					!eval[bool](p, message+`.checkVisibility({visibilityProperty: true})`) {
					t.Errorf("the message is not in view: %s", got)
				}
				if got := eval[int64](p, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("the page is %d px wide", got)
				}
				eval[bool](p, `(document.activeElement.blur(), true)`)
				if got := eval[[]string](p, places); !slices.Equal(got, before) {
					t.Errorf("elements move when the focus leaves: %s", moved(before, got))
				}
				p.set(row.field, row.valid)
				if got := eval[[]string](p, places); !slices.Equal(got, before) {
					t.Errorf("elements move when the message disappears: %s", moved(before, got))
				}
				if eval[bool](p, message+`?.textContent`+` ? true : false`) {
					t.Error("the message does not disappear")
				}
			})
		}
	}
}

// moved returns the first difference.
func moved(before, after []string) string {
	for i := range min(len(before), len(after)) {
		if before[i] != after[i] {
			return before[i] + " -> " + after[i]
		}
	}
	return fmt.Sprintf("%d things -> %d", len(before), len(after))
}

// contrast finds text whose contrast with its background is below the 4.5 to 1 of WCAG AA.
// Disabled elements are exempt.
const contrast = `(() => {
	const channels = (c) => c.match(/[\d.]+/g).map(Number);
	const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = channels(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
	const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	const pale = []; let seen = 0;
	for (const e of document.querySelectorAll('body *')) {
		const field = e.matches('input, select, textarea');
		const text = field || [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
		if (!text || !e.checkVisibility() || e.closest('.visually-hidden, [aria-disabled=true], :disabled')) continue;
		seen++;
		const r = ratio(channels(getComputedStyle(e).color), behind(e));
		if (r < 4.5) pale.push(e.tagName + '.' + e.className + ' ' + r.toFixed(2) + ' ' + e.textContent.slice(0, 30));
		if (field) {
			const p = ratio(channels(getComputedStyle(e, '::placeholder').color), behind(e));
			if (e.matches('input, textarea') && p < 4.5) pale.push('placeholder of ' + e.id + ' ' + p.toFixed(2));
			const b = ratio(channels(getComputedStyle(e).borderTopColor), behind(e));
			if (!e.matches('[type=checkbox]') && b < 3) pale.push('border of ' + e.id + ' ' + b.toFixed(2));
		}
	}
	for (const e of document.querySelectorAll('.bar:not(.gap-bar)')) {
		seen++;
		const r = ratio(channels(getComputedStyle(e).backgroundColor), behind(e.parentElement));
		if (r < 3) pale.push(e.className + ' ' + r.toFixed(2));
	}
	return seen < 40 ? ['only ' + seen + ' texts were seen'] : pale;
})()`

// TestContrast computes the contrast of every text, field and bar in both schemes.
func TestContrast(t *testing.T) {
	p := open(t)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme, "reduce")
		for _, script := range []string{"/s/k/503/200:body=x", "/s/k2/404", "/s/k3/302"} {
			p.run(p.origin.URL("https", script))
			p.unfold()
			for _, pale := range eval[[]string](p, contrast) {
				t.Errorf("%s, after %s: %s", scheme, script, pale)
			}
		}
	}
}

// TestMotion checks that nothing moves if the user prefers no motion.
func TestMotion(t *testing.T) {
	p := open(t)
	for _, row := range []struct {
		motion string
		want   bool
	}{{"no-preference", true}, {"reduce", false}} {
		p.scheme("light", row.motion)
		p.set("url", p.origin.URL("http", "/s/"+row.motion+"/silent"))
		p.click("run")
		p.until(`document.querySelectorAll('.bar.phase-live').length === 1`)
		if got := eval[bool](p, `document.getAnimations().length > 0`); got != row.want {
			t.Errorf("%s: moving %t, want %t", row.motion, got, row.want)
		}
		p.click("cancel")
		p.ended()
	}
}

// TestNames checks that every control has a name, and that the page has its landmarks.
func TestNames(t *testing.T) {
	p := open(t)
	p.header("X-A", "b")
	p.run(p.origin.URL("http", "/s/k/503/200:body=x"))
	p.unfold()
	tree := call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	controls := []string{"button", "textbox", "combobox", "checkbox", "link", "region", "table", "form", "spinbutton", "radio", "log", "DisclosureTriangle"}
	seen := make(map[string]int)
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		seen[role]++
		if slices.Contains(controls, role) && (node.Name == nil || strings.Trim(string(node.Name.Value), `" `) == "") && role != "table" {
			t.Errorf("a %s has no name: node %d", role, node.BackendDOMNodeID)
		}
	}
	for role, least := range map[string]int{"main": 1, "banner": 1, "form": 1, "log": 1, "table": 2, "button": 9, "textbox": 30, "combobox": 10, "checkbox": 1, "heading": 6} {
		if seen[role] < least {
			t.Errorf("%d elements of role %s, want at least %d; the page has %v", seen[role], role, least, seen)
		}
	}
	faults := eval[[]string](p, `[
		...[...document.querySelectorAll('input, select, textarea')].filter((e) => e.labels.length === 0 && !e.ariaLabel).map((e) => 'a field with no label: ' + e.id), // a placeholder is not a label
		...[...document.querySelectorAll('label[for]')].filter((l) => !document.getElementById(l.htmlFor)).map((l) => 'a label for nothing: ' + l.htmlFor),
		...[...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i).map((id) => 'two of id ' + id),
		...[...document.querySelectorAll('[aria-labelledby], [aria-describedby], [aria-errormessage]')].flatMap((e) =>
			['aria-labelledby', 'aria-describedby', 'aria-errormessage'].filter((a) => e.hasAttribute(a) && !document.getElementById(e.getAttribute(a))).map((a) => e.id + ' has ' + a + ' of nothing')),
		...[...document.querySelectorAll('[aria-hidden=true]')].filter((e) => e.querySelector('a, button, input, select, textarea, [tabindex]')).map(() => 'a control that is hidden'),
		...[...document.querySelectorAll('[tabindex]')].filter((e) => e.tabIndex > 0).map((e) => 'tabindex ' + e.tabIndex),
		...(document.documentElement.lang ? [] : ['no language']), ...(document.title ? [] : ['no title']),
		...(document.querySelectorAll('h1').length === 1 ? [] : ['not one h1']),
	]`)
	for _, fault := range faults {
		t.Error(fault)
	}
}

// TestKeyboard fetches, reads and cancels without a mouse.
func TestKeyboard(t *testing.T) {
	p := open(t)
	tab := func() string {
		p.do(chromedp.KeyEvent(kb.Tab))
		return eval[string](p, `document.activeElement.id || document.activeElement.tagName`)
	}
	if got := tab(); got != "url" {
		t.Fatalf("the first Tab moves the focus to %s, want the URL", got)
	}
	p.do(chromedp.KeyEvent(p.origin.URL("http", "/s/keys/503/200")), chromedp.KeyEvent(kb.Enter))
	p.ended()
	p.wantIn(".headline", "Success: 200 after 2 attempts")
	if got := eval[string](p, `document.activeElement.id`); got != "url" {
		t.Errorf("after the run the focus is at %q, want no change", got)
	}
	// Tab once through the page: everything is reached, visible, and left again.
	reached := []string{}
	for range 60 {
		at := tab()
		if at == "BODY" || at == "url" {
			break
		}
		reached = append(reached, at)
		if !eval[bool](p, `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 })()`) {
			t.Errorf("the focus on %s is not visible", at)
		}
	}
	for _, id := range []string{"run", "cancel", "method", "profile", "attempts-max", "add-header", "link", "as-curl", "as-grpcurl", "as-python", "as-node", "save", "SUMMARY"} {
		if !slices.Contains(reached, id) {
			t.Errorf("Tab does not reach %s: %q", id, reached)
		}
	}
	if len(reached) >= 60 {
		t.Errorf("Tab does not return to the start: %q", reached)
	}
	// A disclosure, a header and its removal.
	eval[bool](p, `(document.getElementById('add-header').focus(), true)`)
	p.do(chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent("X-Name"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("a value"))
	p.wantIn("#headers", "×")
	if got := eval[string](p, `JSON.stringify(JSON.parse(document.getElementById('json').value).headers)`); got != `[{"name":"X-Name","value":"a value"}]` {
		t.Errorf("headers %s", got)
	}
	p.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	if got := eval[string](p, `document.activeElement.id`); got != "add-header" {
		t.Errorf("after the removal the focus is at %q, want add-header", got)
	}
	eval[bool](p, `(document.querySelector('form summary').focus(), true)`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector('form details').open`)
}
