//go:build linux

package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"fetchd/server"
	"fetchd/server/console"
	"fetchd/stores"
)

// press focuses and clicks the first element of a selector in one step, because a change of the
// width replaces the rows of the waterfall.
func (p *page) press(selector string) {
	p.Helper()
	eval[bool](p, fmt.Sprintf(`((e) => { e.focus(); e.click(); return true })(document.querySelector(%q))`, selector))
}

// TestOneHeadline checks that the page shows the headline of a result once.
func TestOneHeadline(t *testing.T) {
	p := open(t)
	p.expect("400 (Bad Request)")
	once := func(p *page, want string) {
		p.Helper()
		if got := strings.Count(eval[string](p, `document.getElementById('result').innerText`), want); got != 1 {
			p.Errorf("the page shows %q %d times, want once", want, got)
		}
	}
	for _, row := range []struct{ name, url, headline string }{
		{"success", p.origin.URL("http", "/s/a/503/200"), "Success: 200 after 2 attempts"},
		{"failure", p.origin.URL("http", "/s/b/404"), "Failed: http_client_error, status 404"},
		{"no fetch", "ftp://a.example/", "Not fetched"},
		{"the reason for no fetch", "ftp://a.example/", "must begin with http:// or https://"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.run(row.url)
			once(p, row.headline)
		})
	}
	if eval[bool](p, `document.getElementById('waterfall').checkVisibility()`) {
		t.Error("the page shows attempts of a request that was refused")
	}
	p.set("url", p.origin.URL("http", "/s/c/silent"))
	p.click("run")
	p.until(`document.querySelectorAll('.bar.phase-live').length === 1`)
	once(p, "Running")
	p.click("cancel")
	p.ended()
	once(p, "Cancelled after")
}

// TestExamples checks that an example fills in the URL, keeps the other fields and sends nothing, and
// that the examples of a local origin do what their names say.
func TestExamples(t *testing.T) {
	p := open(t)
	p.set("attempts-max", "2")
	examples := eval[[]string](p, `[...document.querySelectorAll('#examples button')].filter((b) => b.checkVisibility()).map((b) => b.dataset.url)`)
	if len(examples) < 4 {
		t.Fatalf("examples %q, want at least 4", examples)
	}
	for _, example := range examples {
		if u, err := url.Parse(example); err != nil || u.Host == "" {
			t.Errorf("%s is no URL: %v", example, err)
		}
		p.press(`#examples [data-url="` + example + `"]`)
		want := `{"retry_policy":{"max_attempts":2},"url":"` + example + `"}`
		got := eval[string](p, `JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(document.getElementById('json').value)).sort()))`)
		if field := eval[string](p, `document.getElementById('url').value`); got != want || field != example {
			t.Errorf("the form has the URL %s and the request %s, want %s", field, got, want)
		}
	}
	if eval[bool](p, `document.getElementById('result').checkVisibility() || performance.getEntriesByType('resource').some((e) => e.name.includes('/v1/'))`) {
		t.Error("an example starts a fetch")
	}
	p.set("attempts-max", "")
	p.set("examples-from", "local")
	p.set("local-origin", p.origin.URL("http", "/"))
	for _, row := range []struct{ name, headline, body string }{
		{"page", "Success: 200 after 1 attempt", "hello"},
		{"redirects", "Success: 200 after 1 attempt", "hello"},
		{"503, retried", "Success: 200 after 3 attempts", "hello"},
		{"429, waits", "Success: 200 after 2 attempts", "hello"},
		{"JSON", "Success: 200 after 1 attempt", "{\n  \"hello\": [\n    1,\n    2\n  ]\n}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			eval[bool](p, fmt.Sprintf(`([...document.querySelectorAll('#examples button')].find((b) => b.checkVisibility() && b.textContent === %q).click(), true)`, row.name))
			p.click("run")
			p.ended()
			p.wantIn(".headline", row.headline)
			p.want("pre.body", row.body)
		})
	}
}

// TestInSight checks that the first lines of a result are in view after the run, whatever is open.
func TestInSight(t *testing.T) {
	p := open(t)
	p.expect("400 (Bad Request)")
	for _, window := range []struct {
		width, height int64
		body          bool // its first line is in view, too
	}{{1440, 900, true}, {1280, 800, true}, {768, 1024, true}, {390, 844, true}, {320, 568, false}} {
		for _, row := range []struct{ name, open, url, last string }{
			{"a body", "", p.origin.URL("http", "/s/sight/200:body=first"), "pre.body"},
			{"a body after three attempts", "", p.origin.URL("http", "/cycle/sight/503/503/200:body=first"), "pre.body"},
			{"a body of a failure after three attempts", "", p.origin.URL("http", "/s/three/503:body=first"), "pre.body"},
			{"a copied program is open", "as-curl", p.origin.URL("http", "/s/sight/200:body=first"), "pre.body"},
			{"the JSON is open", "json", p.origin.URL("http", "/s/sight/200:body=first"), "pre.body"},
			{"a failure", "", p.origin.URL("http", "/s/gone/404"), ".facts dd"},
			{"refused", "", "ftp://a.example/", ".violations li"},
		} {
			t.Run(fmt.Sprintf("%d by %d, %s", window.width, window.height, row.name), func(t *testing.T) {
				p := p.in(t)
				p.do(chromedp.EmulateViewport(window.width, window.height))
				p.visit("")
				switch row.open {
				case "json":
					eval[bool](p, `(document.getElementById('json').closest('details').open = true)`)
				case "as-curl":
					p.click(row.open)
					p.until(`document.getElementById('copy-note').textContent !== ''`)
				}
				eval[bool](p, `(scrollTo({ top: 0, behavior: 'instant' }), true)`)
				p.run(row.url)
				first := []string{".headline", ".attempt .row"}
				if window.body {
					first = append(first, row.last)
				}
				for _, selector := range first {
					if at := eval[string](p, fmt.Sprintf(`((e) => { if (!e?.checkVisibility()) return 'in view'; const r = e.getBoundingClientRect();
						return r.top >= 0 && r.top + Math.min(r.height, 32) <= innerHeight ? 'in view' : 'at ' + r.top })(document.querySelector(%q))`, selector)); at != "in view" {
						t.Errorf("%s is %s, want it in view", selector, at)
					}
				}
			})
		}
	}
}

// TestFold checks that long lists of hops and attempts are folded.
func TestFold(t *testing.T) {
	p := open(t)
	p.set("redirects-max", "20")
	p.set("attempts-max", "11")
	p.set("base-delay", "1ms")
	p.set("max-delay", "1ms")
	for _, row := range []struct {
		name, path                string
		rows, all                 string // selectors
		folded, unfolded, inTable int
		button                    string
	}{
		{"6 hops", "/r/a/302/5/200", ".hops .row", "", 6, 6, 6, ""},
		{"7 hops", "/r/b/302/6/200", ".hops .row", "", 4, 7, 7, "… 3 more hops"},
		{"21 hops", "/r/c/302/20/200", ".hops .row", "", 4, 21, 21, "… 17 more hops"},
		{"6 attempts", "/s/d/503/503/503/503/503/200", ".attempt", "", 6, 6, 6, ""},
		{"11 attempts", "/s/e/503", ".attempt", "", 4, 11, 11, "… 7 more attempts"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			count := func(want int) {
				t.Helper()
				if got := len(p.text(row.rows)); got != want {
					t.Errorf("%d rows, want %d", got, want)
				}
			}
			p.run(p.origin.URL("http", row.path))
			count(row.folded)
			if got := len(p.text("#table-rows th")); got != row.inTable {
				t.Errorf("the table has %d rows, want %d", got, row.inTable)
			}
			if row.button == "" {
				p.want(".fold button")
				return
			}
			p.want(".fold button", row.button)
			p.press(".fold button")
			count(row.unfolded)
			if !eval[bool](p, `document.activeElement.matches('.fold [aria-expanded=true]')`) {
				t.Error("the button loses the focus")
			}
			p.press(".fold button")
			count(row.folded)
		})
	}
	t.Run("a fetch that goes on", func(t *testing.T) {
		p := p.in(t)
		p.set("url", p.origin.URL("http", "/r/f/302/9/503/silent"))
		p.click("run")
		p.until(`document.querySelectorAll('.attempt').length === 2 && [...document.querySelectorAll('.fold button')].at(-1)?.textContent === '… 5 more hops' && document.querySelector('.phase-live')?.checkVisibility()`)
		p.press(".fold button")
		p.click("cancel")
		p.ended()
		p.want(".fold button", "Hide 6 hops", "… 5 more hops")
		p.run(p.origin.URL("http", "/r/g/302/9/200"))
		p.want(".fold button", "… 6 more hops")
	})
}

// TestLongURLs checks how a URL is compared with the one before, that the part that differs is in
// view, and that the whole URL can be seen and copied.
func TestLongURLs(t *testing.T) {
	p := open(t)
	for _, row := range []struct{ name, before, url, want string }{
		{"no URL before", "", "http://a.example/b", "http://a.example/b||"},
		{"the same URL", "http://a.example/b", "http://a.example/b", "http://a.example/b||"},
		{"the scheme", "http://a.example/b", "https://a.example/b", "|https|://a.example/b"},
		{"a longer host", "https://a.example/", "https://www.a.example/", "https://|www.|a.example/"},
		{"a shorter host", "https://www.a.example/", "https://a.example/", "https://||a.example/"},
		{"a number that has digits in common", "http://a.example/r/38/x", "http://a.example/r/37/x", "http://a.example/r/|37|/x"},
		{"a number that gets shorter", "http://a.example/r/10/x", "http://a.example/r/9/x", "http://a.example/r/|9|/x"},
		{"the value of a parameter", "http://a.example/?page=one&lang=en", "http://a.example/?page=two&lang=en", "http://a.example/?page=|two|&lang=en"},
		{"a path that is added", "http://a.example/b", "http://a.example/b/c", "http://a.example/b|/c|"},
		{"a slash that is added", "http://a.example/b", "http://a.example/b/", "http://a.example/b|/|"},
		{"a segment that repeats", "http://a.example/b/b", "http://a.example/b/b/b", "http://a.example/b/b|/b|"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			got := eval[string](p, fmt.Sprintf(`import('/console/address.js').then((m) => m.difference(%q, %q).join('|'))`, row.before, row.url))
			if got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
	t.Run("short enough, and complete", func(t *testing.T) {
		p := p.in(t)
		faults := eval[[]string](p, `import('/console/address.js').then((m) => {
			const faults = [];
			for (const s of [0, 1, 9, 60, 400]) for (const d of [0, 1, 7, 60, 400]) for (const e of [0, 1, 3, 60, 400]) for (const most of [16, 38, 50]) {
				const parts = m.shorten(['s'.repeat(s), 'd'.repeat(d), 'e'.repeat(e)], most);
				const shown = parts.map(([head, omitted, tail]) => head + (omitted ? '…' : '') + tail);
				const name = [s, d, e, most].join();
				if (parts.flat().join('').length !== s + d + e) faults.push(name + ' loses text');
				if (shown.join('').length > most) faults.push(name + ' has ' + shown.join('').length);
				if (d > 0 && !shown[1].includes('d')) faults.push(name + ' hides the difference');
			}
			return faults;
		})`)
		for _, fault := range faults {
			t.Error(fault)
		}
	})
	key := strings.Repeat("long-", 30)
	address := p.origin.URL("http", "/r/"+key+"/302/3/200:body="+strings.Repeat("words-", 30))
	for _, width := range []int64{1280, 641, 390, 320} {
		t.Run(fmt.Sprintf("%d px", width), func(t *testing.T) {
			p := p.in(t)
			p.do(chromedp.EmulateViewport(width, 800))
			p.run(address)
			faults := eval[[]string](p, `[...document.querySelectorAll('.row-label')].slice(1).flatMap((label) => {
				const mark = label.querySelector('mark');
				const outer = label.getBoundingClientRect();
				const lines = parseFloat(getComputedStyle(label).lineHeight) * (innerWidth > 640 ? 1 : 2) + 12;
				return [
					...[...document.getElementById('axis').children].map((e) => e.getBoundingClientRect()).filter((r, i, all) => r.right > (all[i + 1]?.left ?? document.getElementById('axis').getBoundingClientRect().right) + 1).map((r) => 'a label of the axis ends at ' + r.right),
					...(mark ? [...mark.getClientRects()].filter((r) => r.right > outer.right + 1 || r.bottom > outer.bottom + 1).map(() => 'not in view: ' + mark.textContent) : ['no mark: ' + label.textContent]),
					...(label.scrollWidth > label.clientWidth + 1 ? ['clipped: ' + label.textContent] : []),
					...(outer.height > lines ? ['too high: ' + outer.height] : []),
				];
			})`)
			for _, fault := range faults {
				t.Error(fault)
			}
			p.want(".row-label mark", "2", "1", "s/"+key)
			seen := p.origin.AllRequests()
			want := p.origin.URL("http", seen[len(seen)-1].Path)
			if got := eval[string](p, `(() => { getSelection().selectAllChildren([...document.querySelectorAll('.address')].at(-1)); return getSelection().toString() })()`); got != want {
				t.Errorf("a copy is %q, want %q", got, want)
			}
			p.press(".row-label button")
			if got := eval[string](p, `((l) => [l.querySelector('.omitted') === null, l.scrollWidth <= l.clientWidth + 1, l.querySelector('.address').innerText === document.getElementById('url').value].join())(document.querySelector('.row-label'))`); got != "true,true,true" {
				t.Errorf("the whole URL: nothing omitted, not clipped, equal to the request: %s", got)
			}
			p.press(".row-label button")
			if eval[bool](p, `document.querySelector('.row-label .omitted') === null`) {
				t.Error("the URL is not shortened again")
			}
		})
	}
	t.Run("a window that becomes narrow", func(t *testing.T) {
		p := p.in(t)
		p.do(chromedp.EmulateViewport(1280, 800))
		p.run(address)
		p.do(chromedp.EmulateViewport(320, 800))
		p.until(`[...document.querySelectorAll('.row-label')].every((l) => l.getBoundingClientRect().height < 60)`)
	})
}

// TestStoredAndRecords checks that the page shows where a body and the records are.
func TestStoredAndRecords(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "stores.yaml")
	if err := os.WriteFile(file, []byte(`stores: {bodies: {url: "file://`+dir+`/bodies"}, archive: {url: "warc+file://`+dir+`/archive"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := stores.ReadFile(file, new(stores.Set))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close(t.Context()) })
	p := open(t, func(c *server.Config, _ *console.Config) { c.Stores = set })
	for id, value := range map[string]string{"store": "bodies", "store-key": "a/b", "record": "archive"} {
		p.set(id, value)
	}
	p.run(p.origin.URL("http", "/r/store/302/1/200:body=hello"))
	p.want("h3:has(+ .facts)", "Stored object")
	p.want("h3 + .facts dt", "Store", "Key", "Size", "SHA-256")
	p.want("h3 + .facts dd", "bodies", "a/b", "5 bytes", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
	p.want(".records th[scope=row]", "1.1", "1.1", "1.2", "1.2")
	p.want(".records td:nth-child(2)", "request", "response", "request", "response")
	p.wantIn(".records td:nth-child(3)", ".warc.gz")
	p.wantIn(".records td:nth-child(6)", "urn:uuid:")

	draw := func(p *page, records string) {
		eval[bool](p, `(async () => {
			const { draw } = await import('/console/outcome.js');
			const { Fetch } = await import('/console/model.js');
			const fetch = new Fetch({});
			fetch.take({ elapsed_offset: '1s', outcome: { kind: 'OUTCOME_KIND_SUCCESS', records: `+records+` } });
			draw(fetch, document.getElementById('outcome-body'), () => {});
			return true;
		})()`)
	}
	t.Run("records", func(t *testing.T) {
		p := p.in(t)
		draw(p, `[{ type: 'WARC_TYPE_REQUEST', record_id: 'urn:uuid:1', file: 'a.warc.gz', length_bytes: '300', attempt: 1, hop: 2 },
			{ type: 'WARC_TYPE_REVISIT', record_id: 'urn:uuid:2', file: 'a\u202e.warc.gz', offset_bytes: '12345678901', length_bytes: '400', attempt: 1, hop: 2 }]`)
		p.want(".records tbody tr", "1.2requesta.warc.gz0300urn:uuid:1", "1.2revisita[U+202E].warc.gz12345678901400urn:uuid:2")
		if !eval[bool](p, `document.querySelector('.records').checkVisibility()`) {
			t.Error("the records are folded")
		}
	})
	t.Run("many records", func(t *testing.T) {
		p := p.in(t)
		draw(p, `Array.from({ length: 13 }, (_, i) => ({ type: 'WARC_TYPE_RESPONSE', record_id: String(i), attempt: 1, hop: i }))`)
		p.want("#outcome-body summary", "13 records")
		if got := len(p.text(".records tbody tr")); got != 13 || eval[bool](p, `document.querySelector('.records').checkVisibility()`) {
			t.Errorf("%d records, want 13 that are folded", got)
		}
	})
	t.Run("no records", func(t *testing.T) {
		p := p.in(t)
		draw(p, `[]`)
		p.want("#outcome-body h3")
	})
}

// TestPhone checks that a small window goes to the result, and that the form and Cancel stay within
// reach. A high window does not move.
func TestPhone(t *testing.T) {
	p := open(t)
	p.set("base-delay", "1ms")
	eval[bool](p, `(() => { const move = Element.prototype.scrollIntoView;
		Element.prototype.scrollIntoView = function (o) { moves.push(o.behavior); move.call(this, o) }; return true })()`)
	// at waits until id has the focus and the page no longer scrolls: its top is scroll-margin-top.
	at := func(p *page, id string, top int) {
		p.Helper()
		p.until(fmt.Sprintf(`((e) => e.id === %q && Math.abs(e.getBoundingClientRect().top - %d) < 1 && e.getBoundingClientRect().bottom <= innerHeight)(document.activeElement)`, id, top))
	}
	for _, row := range []struct {
		width, height int64
		motion, how   string
	}{
		{390, 844, "no-preference", "smooth"}, {390, 844, "reduce", "instant"}, {320, 568, "reduce", "instant"}, {844, 390, "reduce", "instant"}, {768, 1400, "reduce", ""}, {1440, 1400, "reduce", ""},
	} {
		t.Run(fmt.Sprintf("%d by %d, motion %s", row.width, row.height, row.motion), func(t *testing.T) {
			p := p.in(t)
			p.scheme("light", row.motion)
			p.do(chromedp.EmulateViewport(row.width, row.height))
			eval[bool](p, `(scrollTo({ top: 0, behavior: 'instant' }), window.moves = [], true)`)
			p.set("url", p.origin.URL("http", fmt.Sprintf("/s/p%d%s/503/silent", row.width, row.motion)))
			p.click("run")
			p.until(`document.querySelectorAll('.bar.phase-live').length === 1 && document.querySelectorAll('.attempt').length === 2`)
			if row.how == "" {
				if got := eval[string](p, `[document.activeElement.id, scrollY, moves.length, document.getElementById('edit').checkVisibility(), document.getElementById('stop').checkVisibility()].join()`); got != "run,0,0,false,false" {
					t.Errorf("focus, position, moves, buttons of small windows: %s", got)
				}
				p.click("cancel")
				p.ended()
				return
			}
			at(p, "headline", 12)
			p.click("stop")
			p.ended()
			at(p, "headline", 12)
			p.wantIn(".headline", "Cancelled")
			if got := eval[[]string](p, `moves`); !slices.Equal(got, []string{row.how}) {
				t.Errorf("the page scrolls %q, want %q once", got, row.how)
			}
			p.click("edit")
			at(p, "url", 40)
		})
	}
}
