//go:build linux

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/server"
	"fetchd/server/console"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
)

// patience is how long a test waits for something that must happen.
const patience = 20 * time.Second

// chromium is the browser of all tests, started by the first of them.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

// TestMain closes the browser after the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code) //nolint:forbidigo // the browser is closed after the last test
}

// program returns the path of the browser.
func program() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("chromium, chromium-browser, google-chrome: %w", exec.ErrNotFound)
}

func startChromium() {
	path, err := program()
	if err != nil {
		chromium.err = err
		return
	}
	data, err := os.MkdirTemp("", "fetchd-browser")
	if err != nil {
		chromium.err = err
		return
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(data)}
	for _, flag := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-proxy-server",
		"disable-background-networking", "disable-component-update", "disable-sync", "disable-default-apps", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP "+foreign+" 127.0.0.1"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.ctx, chromium.err = ctx, chromedp.Do(ctx)
	chromium.stop = func() {
		cancel()
		end()
		_ = os.RemoveAll(data)
	}
}

// page is a tab with a page of a new service. For the console there is also an origin that the
// service can reach.
type page struct {
	*testing.T
	ctx    context.Context
	origin *origin.Origin
	base   string // http://HOST:PORT of the HTTP API
	path   string // of the page
	grpc   string // HOST:PORT of the gRPC API

	saved chan string // paths of saved files
	*findings
}

// findings are what a page did that no test expects.
type findings struct {
	mu       sync.Mutex
	faults   []string // errors and warnings of the browser, and requests to other servers
	expected []string
}

// in returns p for a subtest.
func (p *page) in(t *testing.T) *page {
	c := *p
	c.T = t
	return &c
}

// open opens the console. change may alter the service.
func open(t *testing.T, change ...func(*server.Config, *console.Config)) *page {
	t.Helper()
	needBrowser(t)
	p := &page{T: t, path: "/console/", findings: new(findings)}
	p.serve(change)
	p.browse()
	p.visit("")
	return p
}

// needBrowser starts the browser, or skips the test.
func needBrowser(t *testing.T) {
	t.Helper()
	rig.Long(t, 5*time.Minute)
	chromium.once.Do(startChromium)
	if errors.Is(chromium.err, exec.ErrNotFound) {
		need.Missing(t, "install the Debian package chromium", "%v", chromium.err)
	}
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
}

// browse opens a tab, whose faults fail the test.
func (p *page) browse() {
	p.Helper()
	p.saved = make(chan string, 8)
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	p.Cleanup(cancel)
	ctx, end := context.WithTimeout(ctx, 3*patience)
	p.Cleanup(end)
	p.ctx = ctx
	must.Succeed(p, errors.Join(chromedp.Listen(ctx, p.hear), chromedp.ListenBrowser(ctx, p.hear)))
	call(p, network.Enable, network.EnableParams{})
	call(p, runtime.Enable, cdp.Empty{})
	call(p, cdplog.Enable, cdp.Empty{})
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	told := true
	if _, err := chromedp.CallBrowser(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: p.TempDir(), EventsEnabled: &told}); err != nil {
		p.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(1180, 900))
	p.scheme("light", "reduce") // a click may miss while the page scrolls
	p.Cleanup(p.wantNoFault)
}

// serve starts the origin and the service.
func (p *page) serve(change []func(*server.Config, *console.Config)) {
	p.Helper()
	o := rig.Origin(p.T)
	p.origin = o
	var ports []uint16
	for _, name := range []string{"http", "https"} {
		at, err := netip.ParseAddrPort(o.Addr(name))
		must.Succeed(p, err)
		ports = append(ports, at.Port())
	}
	cfg := server.Config{Fetch: fetch.Config{RootCAs: o.CA(),
		Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports}}}
	calls, pages := listen(p.T), listen(p.T)
	told := console.Config{GRPC: calls.Addr().String(), Version: "v0-test"}
	for _, c := range change {
		c(&cfg, &told)
	}
	cfg.Console = console.Handler(told)
	s, err := server.New(cfg)
	must.Succeed(p, err)
	served := make(chan error, 2)
	go func() { served <- s.Serve(calls) }()
	go func() { served <- s.ServeWeb(pages) }()
	p.Cleanup(func() {
		_ = s.Shutdown(p.Context()) // the context has ended, so running calls are cancelled
		if err := errors.Join(<-served, <-served); err != nil {
			p.Errorf("Serve or ServeWeb = %v, want nil", err)
		}
	})
	p.grpc, p.base = calls.Addr().String(), "http://"+pages.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return l
}

// hear records faults and saved files.
func (p *page) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.fault("exception: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			text, _ := json.Marshal(e.Args)
			p.fault("console: %s", text)
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			p.fault("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if at, err := url.Parse(e.Request.URL); err != nil || at.Scheme != "blob" && "http://"+at.Host != p.base {
			p.fault("a request to %.200s", e.Request.URL)
		}
	case *browser.EventDownloadProgress:
		if e.State == browser.DownloadProgressStateCompleted {
			p.saved <- e.FilePath
		}
	}
}

func (p *page) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// expect allows a fault that contains text.
func (p *page) expect(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, text)
}

func (p *page) wantNoFault() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		known := false
		for _, text := range p.expected {
			known = known || strings.Contains(fault, text)
		}
		if !known {
			p.Errorf("the browser reports %s", fault)
		}
	}
}

// call sends a command to the browser.
func call[P, R any](p *page, command cdp.Command[P, R], params P) R {
	p.Helper()
	got, err := chromedp.Call(p.ctx, command, params)
	must.Succeed(p, err)
	return got
}

// do runs actions in the browser.
func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	must.Succeed(p, chromedp.Do(p.ctx, actions...))
}

// visit opens the page with a fragment and waits for its script.
func (p *page) visit(fragment string) {
	p.Helper()
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.base+p.path+fragment))
	p.until(`document.getElementById('version').textContent !== ''`)
}

// eval evaluates an expression, which may be a promise.
func eval[T any](p *page, expression string) T {
	p.Helper()
	got, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return got
}

// until waits until an expression is true.
func (p *page) until(expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err != nil {
			p.Fatalf("wait for %s: %v; the page says:\n%s", expression, err, eval[string](p, "document.body.innerText"))
		}
		if got {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// set changes a field as a user does, but in one step.
func (p *page) set(id, value string) {
	p.Helper()
	quoted, err := json.Marshal(value)
	must.Succeed(p, err)
	eval[bool](p, fmt.Sprintf(`(() => { const f = document.getElementById(%q); f.value = %s; f.dispatchEvent(new Event('input', {bubbles: true})); return true })()`, id, quoted))
}

// header adds a request header.
func (p *page) header(name, value string) {
	p.Helper()
	p.click("add-header")
	quoted, err := json.Marshal([]string{name, value})
	must.Succeed(p, err)
	eval[bool](p, fmt.Sprintf(`(() => { const last = [...document.querySelectorAll('.header-row')].at(-1).querySelectorAll('input');
		%s.forEach((v, i) => { last[i].value = v; last[i].dispatchEvent(new Event('input', {bubbles: true})) }); return true })()`, quoted))
}

// click presses a control.
func (p *page) click(id string) {
	p.Helper()
	p.do(chromedp.Click(chromedp.CSS("#" + id)))
}

// run fetches a URL and waits for the end.
func (p *page) run(address string) {
	p.Helper()
	p.set("url", address)
	p.click("run")
	p.ended()
}

// ended waits for the end of the running fetch.
func (p *page) ended() {
	p.Helper()
	p.until(`!document.getElementById('outcome').hidden && document.getElementById('cancel').getAttribute('aria-disabled') === 'true'`)
}

// text returns the text of elements.
func (p *page) text(selector string) []string {
	p.Helper()
	return eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent)`, selector))
}

// want compares the text of elements.
func (p *page) want(selector string, want ...string) {
	p.Helper()
	if got := p.text(selector); strings.Join(got, "\n") != strings.Join(want, "\n") {
		p.Errorf("%s shows %q, want %q", selector, got, want)
	}
}

// wantIn checks that an element contains text.
func (p *page) wantIn(selector, part string) {
	p.Helper()
	if got := strings.Join(p.text(selector), "\n"); !strings.Contains(got, part) {
		p.Errorf("%s shows %q, want %q in it", selector, got, part)
	}
}
