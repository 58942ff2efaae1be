//go:build linux

package browser

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"fetchd/server"
	"fetchd/server/console"
)

// TestFlaky checks what the page shows and announces for a fetch of three attempts.
func TestFlaky(t *testing.T) {
	p := open(t)
	p.run(p.origin.URL("http", "/s/flaky/503/503/200:body=hello"))
	p.want(".attempt h3", "Attempt 1", "Attempt 2", "Attempt 3")
	p.want(".attempt .badge", "503 http_server_error", "503 http_server_error", "200")
	for i, want := range []string{"rule H1 · retry in 200 ms · ", "rule H1 · retry in 400 ms · "} {
		if got := p.text(".attempt-head .muted")[i]; !strings.HasPrefix(got, want) {
			p.Errorf("attempt %d has the note %q, want %q at its start", i+1, got, want)
		}
	}
	p.want(".row.gap .row-label",
		"Waits 200 ms · backoff · rule W1: The wait is the backoff of the profile, unless a Retry-After says otherwise.", "Waits 400 ms · backoff · rule W1: The wait is the backoff of the profile, unless a Retry-After says otherwise.")
	if got := len(p.origin.Requests("flaky")); got != 3 {
		t.Errorf("the origin saw %d requests, want 3", got)
	}
	p.wantIn(".headline", "Success: 200 after 3 attempts")
	p.wantIn(".facts", "H0: A 2xx whose body is")
	p.want("pre.body", "hello")
	p.want("#table-rows th", "1.1", "2.1", "3.1")
	p.want("#table-rows .gap td:last-child", "Waits 200 ms · backoff · rule W1", "Waits 400 ms · backoff · rule W1")
	said := strings.Join(p.text("#log p"), "\n")
	for _, part := range []string{"Attempt 1: 503 http_server_error. Waits 200 ms", "Attempt 2: 503", "Attempt 3: 200.", "Success: 200 after 3 attempts"} {
		if !strings.Contains(said, part) {
			t.Errorf("the live region says %q, want %q in it", said, part)
		}
	}
	// The bars are at the positions of their times: each starts after the previous one.
	starts := eval[[]float64](p, `[...document.querySelectorAll('.bar')].map((b) => Number(b.style.getPropertyValue('--s')))`)
	for i := 1; i < len(starts); i++ {
		if starts[i] < starts[i-1] {
			t.Errorf("bar %d starts at %g s, before bar %d at %g s", i, starts[i], i-1, starts[i-1])
		}
	}
	// Within a hop each phase starts where the previous one ended.
	apart := eval[float64](p, `Math.max(...[...document.querySelectorAll('.track')].flatMap((t) => [...t.children].slice(1).map((b, i) => {
		const of = (e, name) => Number(e.style.getPropertyValue(name));
		return Math.abs(of(t.children[i], '--s') + of(t.children[i], '--d') - of(b, '--s'));
	})))`)
	if apart > 1e-6 {
		t.Errorf("two phases of a hop are %g s apart", apart)
	}
	if right := eval[float64](p, `Math.max(...[...document.querySelectorAll('.bar')].map((b) => b.getBoundingClientRect().right - b.parentElement.getBoundingClientRect().right))`); right > 1 {
		t.Errorf("a bar ends %g px beyond its track", right)
	}
}

// TestLive checks two attempts and two waits while the third attempt hangs, and cancels it.
func TestLive(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(*page)
	}{
		{"by the button", func(p *page) { p.click("cancel") }},
		{"by Escape", func(p *page) { p.do(chromedp.KeyEvent(kb.Escape)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := open(t)
			p.set("url", p.origin.URL("http", "/s/hangs/503/503/silent"))
			p.click("run")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			seen, err := p.origin.Await(ctx, "hangs", 3)
			if err != nil {
				t.Fatal(err)
			}
			p.until(`document.querySelectorAll('.attempt').length === 3 && document.querySelectorAll('.row.gap').length === 2 && document.querySelectorAll('.bar.phase-live').length === 1`)
			p.want(".attempt .badge", "503 http_server_error", "503 http_server_error", "in flight")
			p.want(".headline h2", "Running")
			row.end(p)
			p.ended()
			p.wantIn(".headline", "Cancelled after")
			p.want(".attempt .badge", "503 http_server_error", "503 http_server_error", "cancelled")
			select {
			case <-seen.Done:
			case <-ctx.Done():
				t.Fatal("the request to the origin was not cancelled")
			}
			p.run(p.origin.URL("http", "/s/again/200")) // the page still works
			p.wantIn(".headline", "Success: 200 after 1 attempt")
		})
	}
}

// TestWaits checks that a wait is counted down with its reason, and that screen readers hear of it
// once.
func TestWaits(t *testing.T) {
	p := open(t)
	eval[bool](p, `(window.shown = [], new MutationObserver(() => shown.push(document.getElementById('waits').textContent)).observe(document.getElementById('waits'), { childList: true }), true)`)
	for _, row := range []struct{ name, script, want string }{
		{"Retry-After", "429:retry-after=2/200", `^Attempt 2 in (2|1|0) s: the origin asked for 2 s \(Retry-After\)$`},
		{"backoff", "503/200", `^Attempt 2 in (2|1|0) s: a wait of 2 s \(backoff\)$`},
		{"a slow origin", "200:delay=2500ms", `^Attempt 1: waiting for the origin, [1-9]\d* s$`},
		{"a slow body", "200:body=ab,drip=1@2500ms", `^Attempt 1: reading the body, [1-9]\d* s$`},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.set("base-delay", "1s")
			eval[bool](p, `(shown.length = 0, document.getElementById('log').replaceChildren(), true)`)
			p.run(p.origin.URL("http", "/s/"+url.PathEscape(row.name)+"/"+row.script))
			if texts := eval[[]string](p, `shown`); !slices.ContainsFunc(texts, regexp.MustCompile(row.want).MatchString) {
				t.Errorf("the page shows %q, want %s", texts, row.want)
			}
			p.want("#waits", "")
			attempts := len(p.text(".attempt"))
			if said := p.text("#log p"); len(said) != 2+attempts {
				t.Errorf("the live region says %q, want the start, each attempt and the outcome", said)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		p := p.in(t)
		p.set("url", p.origin.URL("http", "/s/cancelled/429:retry-after=20/200"))
		p.click("run")
		p.until(`/^Attempt 2 in 1\d s: the origin asked for 20 s/.test(document.getElementById('waits').textContent) && /^1\d s left$/.test(document.querySelector('.row.gap .row-time').textContent)`)
		if got := eval[string](p, `((e) => [e.getAttribute('role'), e.closest('[aria-live], [role=log], [role=status]')].join())(document.getElementById('waits'))`); got != "timer," {
			t.Errorf("the countdown has the role and the live region %s, want timer and none", got)
		}
		p.do(chromedp.KeyEvent(kb.Escape))
		p.ended()
		p.want("#waits", "")
	})
}

// TestFailures checks that failures show the phase that did not end, and their rule.
func TestFailures(t *testing.T) {
	p := open(t)
	p.expect("400 (Bad Request)")
	for _, row := range []struct {
		name, path, headline, advice, facts string
		why                                 string // of the last attempt and of the fetch
	}{
		{"a status that is final", "/s/a/404:body=gone", "Failed: http_client_error, status 404, after 1 attempt", "; do not fetch it again", "H6: Any other 4xx: permanent, never", "not_retried"},
		{"attempts spent", "/s/b/503", "Failed: http_server_error, status 503, after 3 attempts", "; a later fetch may succeed", "I4: There are at most max_attempts", "attempts_exhausted"},
		{"Retry-After too long", "/s/c/429:retry-after=900", "Failed: rate_limited, status 429, after 1 attempt", "; a later fetch may succeed", "W3: A Retry-After longer than max_retry_after", "retry_after_too_long"},
		{"a loop", "/loop/d/302", "Failed: redirect_loop, status 302, after 1 attempt", "; do not fetch it again", "R2: A redirect leads back to", "not_retried"},
		{"a redirect not followed", "/s/e/302", "Redirect, not followed: 302", "after 1 attempt", "H9: A 3xx that must not", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.run(p.origin.URL("http", row.path))
			p.wantIn(".headline", row.headline)
			p.wantIn(".headline", row.advice)
			p.wantIn(".facts", row.facts)
			note := p.text(".attempt:last-child .attempt-head .muted")[0]
			if row.why == "" && strings.Contains(note, "no_failure") || !strings.Contains(note, row.why) {
				t.Errorf("the last attempt has the note %q, want %q in it", note, row.why)
			}
			if row.why != "" {
				p.wantIn(".facts", "Stopped because"+row.why)
			}
		})
	}
	t.Run("a request that the service refuses", func(t *testing.T) {
		p := p.in(t)
		p.run("nonsense")
		p.wantIn(".headline", "Not fetched")
		p.wantIn("#url-wrong", "http")
		p.run(p.origin.URL("http", "/s/h/200")) // the mark does not forbid the next run
		p.wantIn(".headline", "Success: 200")
		if got := len(p.text("#url-wrong")); got != 0 {
			t.Error("the field is still marked")
		}
	})
	t.Run("a POST is not sent again", func(t *testing.T) {
		p := p.in(t)
		p.set("method", "POST")
		defer p.set("method", "GET")
		p.run(p.origin.URL("http", "/s/g/503"))
		p.wantIn(".headline", "s; not sent again, because it may have taken effect")
		if got := strings.Count(eval[string](p, `document.getElementById('result').innerText`), "because it may have taken effect"); got != 1 {
			t.Errorf("the page gives the reason %d times, want once", got)
		}
	})
	t.Run("a head that does not come", func(t *testing.T) {
		p := p.in(t)
		p.set("header-time", "300ms")
		p.set("attempts-max", "1")
		p.run(p.origin.URL("http", "/s/f/silent"))
		p.wantIn(".headline", "Failed: response_timeout after 1 attempt")
		if got := eval[int](p, `document.querySelectorAll('.bar.phase-wait.broken').length`); got != 1 {
			t.Errorf("%d bars of a wait that did not end, want 1", got)
		}
	})
}

// TestFailedAt checks that the page names the URL that failed if it differs from that of the
// last response, and only then.
func TestFailedAt(t *testing.T) {
	p := open(t)
	for _, row := range []struct {
		name, path string
		names      bool
	}{
		{"at the only URL", "/s/a/404", false},
		{"at the end of a redirect", "/r/b/302/1/404", false},
		{"without a response, behind a redirect", "/r/c/302/1/reset", false},
		{"without a response, after a redirect had one", "/s/e/302:to=%2Fs%2Ff%2F503/reset", true},
		{"no failure", "/s/d/200", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.run(p.origin.URL("http", row.path))
			facts := eval[map[string]string](p, `Object.fromEntries([...document.querySelectorAll('.facts div')].map((d) => [d.querySelector('dt').textContent, d.querySelector('dd').textContent]))`)
			at, named := facts["Failed at"]
			if named != row.names || named && at == facts["Final URL"] || facts["Status"] == "" {
				t.Errorf("facts %v, want a Failed at: %v", facts, row.names)
			}
			for name, text := range facts {
				if text == "false" || text == "true" || text == "undefined" || text == "null" {
					t.Errorf("%s: %s", name, text)
				}
			}
		})
	}
}

// TestPreviousOutcome checks that the page shows the outcome of the latest request only.
func TestPreviousOutcome(t *testing.T) {
	p := open(t)
	gone := func(p *page, headline string) {
		p.Helper()
		if got := eval[string](p, `((e) => e.checkVisibility() ? e.innerText : "")(document.getElementById("result"))`); strings.Contains(got, "client_error") || strings.Contains(got, "Outcome") {
			p.Errorf("the page still shows %q", got)
		}
		p.want(".headline h2", headline)
	}
	for _, row := range []struct{ name, field, value, valid string }{
		{"a field that cannot be sent", "base-delay", "soon", "1s"},
		{"JSON that cannot be sent", "json", "{", "{}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.run(p.origin.URL("http", "/s/a/404"))
			p.wantIn(".headline", "http_client_error")
			p.set("url", p.origin.URL("http", "/s/b/200"))
			p.set(row.field, row.value)
			p.click("run")
			p.until(`document.activeElement.id === '` + row.field + `'`)
			gone(p, "")
			p.set(row.field, row.valid)
			p.run(p.origin.URL("http", "/s/b/200"))
			p.wantIn(".headline", "Success")
		})
	}
	t.Run("a fetch that runs", func(t *testing.T) {
		p := p.in(t)
		p.run(p.origin.URL("http", "/s/a/404"))
		p.set("url", p.origin.URL("http", "/s/c/silent"))
		p.click("run")
		p.until(`document.querySelectorAll('.bar.phase-live').length === 1`)
		gone(p, "Running")
		p.click("cancel")
		p.ended()
	})
}

// TestRefused checks that the page shows why the service refuses a fetch.
func TestRefused(t *testing.T) {
	p := open(t)
	p.expect("400 (Bad Request)")
	p.run("ftp://a.example/")
	p.want(".headline", "Not fetched")
	p.wantIn(".violations", "url")
	t.Run("a value that is none", func(t *testing.T) {
		p := p.in(t)
		before := len(p.origin.AllRequests())
		p.set("url", p.origin.URL("http", "/s/g/200"))
		p.set("base-delay", "soon")
		p.click("run")
		p.until(`document.activeElement.id === 'base-delay' && document.activeElement.closest('details').open`)
		p.want("#base-delay-wrong", "Give a time with its unit, such as 500ms, 2s or 1m.")
		if got := len(p.origin.AllRequests()); got != before {
			t.Errorf("%d requests reached the origin", got-before)
		}
	})
}

// TestFormAndJSON checks that form and JSON change each other, and that JSON without a field stays.
func TestFormAndJSON(t *testing.T) {
	p := open(t)
	p.set("json", `{"url": "http://a.example/", "retryPolicy": {"baseDelay": "0.5s", "max_attempts": 2}, "body": "w6k=", "integrity": {"sizeBytes": "7"}, "labels": {"a_b": "c", "aB": "d"}}`) // both spellings
	p.want("#json-wrong", "")
	for id, want := range map[string]string{"url": "http://a.example/", "base-delay": "0.5s", "attempts-max": "2", "body": "é", "labels": "a_b=c, aB=d"} {
		if got := eval[string](p, `document.getElementById('`+id+`').value`); got != want {
			t.Errorf("#%s is %q, want %q", id, got, want)
		}
	}
	p.set("base-delay", "250 ms")
	p.set("attempts-max", "")
	p.set("max-size", "18446744073709551615")
	p.set("additional", "418, 423")
	want := `{"url":"http://a.example/","retry_policy":{"base_delay":"0.25s","additional_status_codes":[418,423]},"body":"w6k=","integrity":{"size_bytes":"7"},"labels":{"a_b":"c","aB":"d"},"body_policy":{"max_size_bytes":"18446744073709551615"}}`
	if got := eval[string](p, `JSON.stringify(JSON.parse(document.getElementById('json').value))`); got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	for _, row := range []struct{ text, want string }{
		{"{", "This is not JSON"}, {"[]", "Give an object"}, {"null", "Give an object"}, {`{"retry_policy":{"jitter_seed":18446744073709551615}}`, "in quotes"},
	} {
		p.set("json", row.text)
		p.wantIn("#json-wrong", row.want)
	}
	p.set("json", `{"url": 5, "retry_policy": [1], "headers": {"a": 1}, "__proto__": {"polluted": 1}}`) // none of it fits a field
	p.set("base-delay", "1s")
	if eval[bool](p, `({}).polluted !== undefined`) {
		t.Error("__proto__ had an effect")
	}
}

// TestDelivery checks that the form has one delivery, and that a setting of a delivery chooses it.
func TestDelivery(t *testing.T) {
	p := open(t)
	for _, step := range []struct{ field, value, want, delivery, holdBack, key string }{
		{"hold-back", "0", `{"stream":{"max_hold_back_bytes":"0"}}`, "", "0", ""},
		{"delivery", "auto", `{"auto":{"max_hold_back_bytes":"0"}}`, "auto", "0", ""},
		{"recovery", "BODY_RECOVERY_NONE", `{"auto":{"max_hold_back_bytes":"0","recovery":"BODY_RECOVERY_NONE"}}`, "auto", "0", ""},
		{"recovery", "", `{"auto":{"max_hold_back_bytes":"0"}}`, "auto", "0", ""},
		{"hold-back", "", `{"auto":{}}`, "auto", "", ""},
		{"delivery", "inline", `{"inline":{}}`, "inline", "", ""},
		{"max-size", "7", `{"inline":{},"max_size_bytes":"7"}`, "inline", "", ""},
		{"store-key", "a/b", `{"max_size_bytes":"7","store":{"key":"a/b"}}`, "store", "", "a/b"},
		{"store", "bodies", `{"max_size_bytes":"7","store":{"key":"a/b","store":"bodies"}}`, "store", "", "a/b"},
		{"store", "", `{"max_size_bytes":"7","store":{"key":"a/b"}}`, "store", "", "a/b"},
		{"store-key", "", `{"max_size_bytes":"7","store":{}}`, "store", "", ""},
		{"hold-back", "8", `{"max_size_bytes":"7","stream":{"max_hold_back_bytes":"8"}}`, "", "8", ""},
		{"delivery", "digest", `{"digest":{},"max_size_bytes":"7"}`, "digest", "", ""},
		{"delivery", "", `{"max_size_bytes":"7"}`, "", "", ""},
		{"max-size", "", "", "", "", ""},
		{"json", `{"body_policy":{"none":{}}}`, `{"none":{}}`, "none", "", ""},
		{"json", `{"body_policy":{"auto":{"max_hold_back_bytes":"9"}}}`, `{"auto":{"max_hold_back_bytes":"9"}}`, "auto", "9", ""},
	} {
		p.set(step.field, step.value)
		got := eval[string](p, `((v) => { const sorted = (o) => o && typeof o === 'object' ? Object.fromEntries(Object.entries(o).sort().map(([k, x]) => [k, sorted(x)])) : o;
			return JSON.stringify(sorted(v)) ?? '' })(JSON.parse(document.getElementById('json').value).body_policy)`)
		if got != step.want {
			t.Errorf("%s is %q: body_policy %s, want %s", step.field, step.value, got, step.want)
		}
		for id, want := range map[string]string{"delivery": step.delivery, "hold-back": step.holdBack, "store-key": step.key} {
			if got := eval[string](p, `document.getElementById('`+id+`').value`); got != want {
				t.Errorf("%s is %q: #%s is %q, want %q", step.field, step.value, id, got, want)
			}
		}
	}
}

// TestToken checks that the page asks for a token when one is needed, and keeps it only in memory.
func TestToken(t *testing.T) {
	p := open(t, func(c *server.Config, _ *console.Config) {
		c.Authenticate = func(shown server.Credentials) (string, error) {
			if shown.Token != "s3cret-of-mine" {
				return "", errors.New("send an Authorization header: Bearer TOKEN")
			}
			return "somebody", nil
		}
	})
	p.expect("401 (Unauthorized)")
	p.run(p.origin.URL("http", "/s/k/200"))
	p.want(".headline", "Not fetched")
	p.until(`document.activeElement.id === 'token' && !document.getElementById('token-field').hidden`)
	p.do(chromedp.KeyEvent("s3cret-of-mine"), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector('.headline')?.textContent.startsWith('Success')`)
	p.click("link")
	p.until(`!document.getElementById('link-box').hidden`)
	for _, id := range []string{"as-curl", "as-grpcurl", "as-python", "as-node"} {
		p.click(id)
		p.until(`!document.getElementById('copy-box').hidden`)
		if got := eval[string](p, `document.getElementById('copy-text').value + location.href + document.getElementById('json').value`); strings.Contains(got, "s3cret") {
			t.Errorf("%s: the token is in %s", id, got)
		}
	}
	if got := eval[int](p, `localStorage.length + sessionStorage.length + document.cookie.length`); got != 0 {
		t.Errorf("the page has stored data")
	}
}

// TestOriginsThatAttack checks that markup, bidi and control characters appear as text.
func TestOriginsThatAttack(t *testing.T) {
	p := open(t)
	const markup = `<img src=x onerror=window.pwned=1><script>window.pwned=1</script>`
	coded := strings.NewReplacer("<", "%3C", ">", "%3E", "/", "%2F", "=", "%3D", " ", "%20").Replace(markup)
	p.run(p.origin.URL("http", "/r/x/302/1/404:header=X-Markup="+coded+",header1=X-Bidi=a%E2%80%AEb,body="+coded+"%E2%80%AE%1B[31m,type=text%2Fhtml?q="+coded))
	p.wantIn(".headline", "http_client_error")
	p.wantIn("pre.body", markup+"[U+202E][U+001B]")
	p.wantIn("table.headers", markup)
	p.wantIn("table.headers", "a[U+202E]b")
	safe := func() {
		t.Helper()
		if got := eval[string](p, `[typeof window.pwned, document.scripts.length, document.querySelectorAll('main img, main script, main iframe').length, document.querySelectorAll('a[href]').length].join()`); got != "undefined,1,0,0" {
			t.Errorf("the page was changed: %s", got)
		}
	}
	safe()
	// Links with markup and with a script URL are shown and not executed.
	p.visit(eval[string](p, `import('/console/link.js').then((m) => m.fragment({url: 'javascript:window.pwned=1//`+markup+`', headers: [{name: '`+markup+`', value: '\u202e`+markup+`'}], method: '`+markup+`'}))`))
	p.wantIn("#notice", "came from a link")
	safe()
	p.expect("400 (Bad Request)")
	before := len(p.origin.AllRequests())
	p.click("run")
	p.ended()
	p.want(".headline", "Not fetched")
	safe()
	if got := len(p.origin.AllRequests()); got != before {
		t.Errorf("%d requests reached the origin", got-before)
	}
	for _, fragment := range []string{"#r=%%%", "#r=" + markup, "#r=bnVsbA", "#" + markup} {
		p.visit(fragment)
		safe()
	}
}

// TestPolicyHolds checks that the content security policy would stop an injection.
func TestPolicyHolds(t *testing.T) {
	p := open(t)
	for _, text := range []string{"Content Security Policy", "TrustedHTML", "TrustedScript", "a request to http://192.0.2.1",
		"a request to data:image/png"} { // the browser shows it in a refused frame
		p.expect(text)
	}
	for _, row := range []struct{ name, try string }{
		{"markup", `try { document.body.insertAdjacentHTML('beforeend', '<i id=slip></i>'); return true } catch { return false }`},
		{"an inline script", `const s = document.createElement('script'); try { s.text = 'window.slip = 1'; document.body.append(s) } catch {} return 'slip' in window`},
		{"an inline style", `const s = document.createElement('style'); s.append('body { margin: 77px }'); document.head.append(s); return getComputedStyle(document.body).marginTop === '77px'`},
		{"a style attribute", `document.body.setAttribute('style', 'margin: 77px'); return getComputedStyle(document.body).marginTop === '77px'`},
		{"a call elsewhere", `try { await fetch('http://192.0.2.1/', { mode: 'no-cors', signal: AbortSignal.timeout(5000) }); return true } catch (e) { return e.name !== 'TypeError' }`},
		{"a frame", `const f = document.createElement('iframe'); f.src = '/console/'; document.body.append(f); await new Promise((done) => { f.onload = done; setTimeout(done, 3000) });
			try { return f.contentDocument.getElementById('run') !== null } catch { return false }`},
	} {
		if eval[bool](p, "(async () => { "+row.try+" })()") {
			t.Errorf("%s is not blocked", row.name)
		}
	}
}
