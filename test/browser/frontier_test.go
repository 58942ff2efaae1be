//go:build linux

package browser

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/api"
	frontierpage "fetchd/frontier/api/page"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/test/must"
	"fetchd/test/rig"
)

// frontierService answers the page of the frontier as a test says. The real service cannot have
// hosts with control characters, and its database does not fail on request.
type frontierService struct {
	token   string // that callers need; empty means none
	watched chan *pb.WatchResponse

	mu       sync.Mutex
	age      time.Duration // of the counts
	watchers int
	stats    *pb.StatsResponse
	why      *pb.WhyResponse // nil means that there is no such URL
	fail     map[string]int  // the HTTP status of each method that fails
	calls    []string        // methods and bodies
}

func (s *frontierService) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	if r.Method == http.MethodGet {
		body = []byte(r.URL.RawQuery)
	}
	method := strings.TrimPrefix(r.URL.Path, "/v1/")
	message, code := s.answer(method, string(body), r.Header.Get("Authorization"))
	rw.Header().Set("Content-Type", "application/json")
	if code != 200 {
		rw.WriteHeader(code)
		_, _ = fmt.Fprintf(rw, `{"code": 14, "message": "refused with %d\u202e"}`, code)
		return
	}
	if method == "watch" {
		s.watch(rw, r)
		return
	}
	_, _ = rw.Write(message)
}

func (s *frontierService) answer(method, body, token string) (message []byte, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, method+" "+body)
	switch code := s.fail[method]; {
	case s.token != "" && token != "Bearer "+s.token:
		return nil, http.StatusUnauthorized
	case code != 0:
		return nil, code
	}
	switch method {
	case "stats":
		s.stats.CountTime = timestamppb.New(time.Now().Add(-s.age))
		return jsonOf(s.stats), 200
	case "why":
		if s.why == nil {
			return nil, http.StatusNotFound
		}
		return jsonOf(s.why), 200
	case "pause", "resume":
		s.stats.Paused = method == "pause"
	}
	return []byte("{}"), 200
}

func (s *frontierService) watch(rw http.ResponseWriter, r *http.Request) {
	watchers := func(n int) { s.set(func(s *frontierService) { s.watchers += n }) }
	watchers(1)
	defer watchers(-1)
	control := http.NewResponseController(rw)
	_ = control.Flush() // an error means that the client is gone
	for {
		select {
		case message, more := <-s.watched:
			if !more {
				return
			}
			for _, outcome := range message.GetOutcomes() {
				_, _ = fmt.Fprintf(rw, "%s\n", jsonOf(outcome))
			}
			_ = control.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// jsonOf writes a message as the API does. protojson adds spaces at random.
func jsonOf(m proto.Message) []byte {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

// set changes what the service answers.
func (s *frontierService) set(change func(*frontierService)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *frontierService) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, call := range s.calls {
		if strings.HasPrefix(call, method+" ") {
			n++
		}
	}
	return n
}

func (s *frontierService) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[len(s.calls)-1]
}

func (s *frontierService) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers
}

// openFrontier opens the page of the frontier.
func openFrontier(t *testing.T, s *frontierService) *page {
	t.Helper()
	needBrowser(t)
	if s.stats == nil {
		s.stats = crawl()
	}
	mux := http.NewServeMux()
	mux.Handle("/", frontierpage.Handler(frontierpage.Config{Token: s.token != "", Version: "v0-test"}))
	mux.Handle("/v1/{method}", s)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	p := &page{T: t, path: "/console/", base: web.URL, findings: new(findings)}
	p.browse()
	p.visit("")
	return p
}

// crawl returns the state of a crawl that runs.
func crawl() *pb.StatsResponse {
	now := time.Now()
	return &pb.StatsResponse{
		PendingCount: 1200, FetchingCount: 34, FetchedCount: 8000, FailedCount: 56, DeadCount: 710, HostCount: 40, InFlightHostCount: 34, BlockedHostCount: 1, PausedHostCount: 1, DueHostCount: 3,
		LastMinuteOutcomeCount: 744, LastMinuteBodyBytes: 90 << 20, BodyBytes: 3 << 30,
		ErrorClasses: []*pb.ClassCount{{ErrorClass: "http_client_error", DeadCount: 600}, {ErrorClass: "connect_timeout", FailedCount: 56, DeadCount: 10}, {ErrorClass: "robots_disallowed", DeadCount: 100}},
		SlowestHosts: []*pb.HostStats{
			{Host: "slow.test", FetchCount: 12, FailureCount: 3, MeanFetchDuration: durationpb.New(4200 * time.Millisecond), BodyBytes: 5 << 20, InFlightCount: 1},
			{Host: "quick.test:8080", FetchCount: 7988, MeanFetchDuration: durationpb.New(20 * time.Millisecond), BodyBytes: 3 << 30},
		},
		ClosedHosts: []*pb.HostStats{
			{Host: "blocked.test", FetchCount: 3, FailureCount: 3, BlockEndTime: timestamppb.New(now.Add(10 * time.Minute))},
			{Host: "paused.test", Paused: true},
		},
		Workers: []*pb.WorkerStats{
			{Worker: "a-1", ClaimedCount: 30, LastSeenTime: timestamppb.New(now.Add(-40 * time.Minute))},
			{Worker: "lost-1", ClaimedCount: 4, Vanished: true, LastSeenTime: timestamppb.New(now.Add(-5 * time.Minute))},
			{Worker: "python", ClaimedCount: 2},
		},
	}
}

// reload reads the state at once.
func (p *page) reload() {
	p.Helper()
	eval[bool](p, `(document.dispatchEvent(new Event('visibilitychange')), true)`)
}

func TestFrontierStates(t *testing.T) {
	s := &frontierService{}
	p := openFrontier(t, s)
	for _, row := range []struct {
		name, badge, headline string
		stats                 *pb.StatsResponse
	}{
		{"empty", "Empty", "The frontier has no URLs.", &pb.StatsResponse{}},
		{"running", "Running", "8,710 of 10,000 URLs are done (87.1 %). At this rate the other 1,290 take 104 s.", crawl()},
		{"paused", "Paused", "Workers claim nothing until you resume.", &pb.StatsResponse{PendingCount: 5, Paused: true}},
		{"done", "Done", "8 of 8 URLs are done (100 %). 7 were fetched, 1 failed for good.", &pb.StatsResponse{FetchedCount: 7, DeadCount: 1}},
		{"idle", "Idle", "is a worker running?", &pb.StatsResponse{FetchedCount: 7, PendingCount: 1}},
		{"almost done", "Running", "1,999,999 of 2,000,000 URLs are done (99.9 %).", &pb.StatsResponse{FetchedCount: 1_999_999, FetchingCount: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			s.set(func(s *frontierService) { s.stats = row.stats })
			p.visit("")
			p.until(`!document.getElementById('state').hidden`)
			p.want("#badge", row.badge)
			p.wantIn("#headline", row.headline)
			p.want("#log p", row.badge+".")
			if row.name != "running" {
				p.wantIn("#no-workers", "No worker runs or holds claims, and none vanished")
				return
			}
			p.want("#counts dd", "8,000", "34", "1,200", "56", "710")
			p.want("#rates dd", "12", "1.5 MiB", "3.0 GiB", "12")
			p.want("#classes tr:first-child td", "http_client_error", "0", "600", "")
			p.want("#closed td:nth-child(2)", "blocked, opens in 10 min", "paused")
			p.want("#slowest tr:first-child td", "slow.test", "4.2 s", "12", "3", "5.0 MiB", "1")
			p.want("#workers td:nth-child(3)", "40 min ago", "vanished, 5 min ago", "only claims")
			widths := eval[[]float64](p, `[...document.querySelectorAll('#meter div')].map((e) => e.getBoundingClientRect().width)`)
			if len(widths) != 5 || widths[0] < 5*widths[2] || widths[2] < 10*widths[1] {
				t.Errorf("the bar has pieces of %v px", widths)
			}
		})
	}
}

// TestFrontierPolls checks that the page reads again while it is visible, keeps its rows, and stops
// while it is hidden.
func TestFrontierPolls(t *testing.T) {
	s := &frontierService{}
	p := openFrontier(t, s)
	p.until(`document.querySelectorAll('#workers tr').length === 3`)
	eval[bool](p, `(window.row = document.querySelector('#workers tr:nth-child(2)'), true)`)
	s.set(func(s *frontierService) {
		s.stats.Workers = slices.Concat([]*pb.WorkerStats{{Worker: "a-0", ClaimedCount: 1}}, s.stats.Workers[1:])
		s.stats.Workers[1].ClaimedCount = 3
	})
	p.until(`document.querySelector('#workers tr').textContent.startsWith('a-0')`)
	p.want("#workers tr:nth-child(2) td:nth-child(2)", "3")
	if !eval[bool](p, `window.row.isConnected && window.row === document.querySelector('#workers tr:nth-child(2)')`) {
		t.Error("a row was replaced, so that a selection in it is lost")
	}
	p.click("more-hosts")
	p.until(`document.getElementById('more-hosts').getAttribute('aria-pressed') === 'true'`)
	before := s.count("stats")
	p.reload()
	rig.Until(p.ctx, t, "the page calls again", func() bool { return s.count("stats") > before })
	if last := s.last(); last != "stats max_hosts=100" {
		t.Errorf("the page sent %s", last)
	}
	p.want("#age", "")
	s.set(func(s *frontierService) { s.age = time.Hour })
	p.reload()
	p.until(`document.getElementById('age').textContent === 'counted 60 min ago'`)
	sent := eval[int](p, `(async () => {
		let sent = 0;
		const send = window.fetch;
		window.fetch = (...args) => (sent++, send(...args));
		Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
		document.dispatchEvent(new Event('visibilitychange'));
		await new Promise((done) => setTimeout(done, 2500)); // longer than between two readings
		return sent;
	})()`)
	if sent != 0 {
		t.Errorf("a hidden page sent %d requests", sent)
	}
	hidden := s.count("stats")
	eval[bool](p, `(delete document.visibilityState, true)`)
	p.reload()
	rig.Until(p.ctx, t, "the page calls again", func() bool { return s.count("stats") > hidden })
}

// TestFrontierFails checks the page while the database or the whole service is down.
func TestFrontierFails(t *testing.T) {
	s := &frontierService{}
	p := openFrontier(t, s)
	p.expect("503 (Service Unavailable)")
	p.expect("ERR_")
	p.until(`!document.getElementById('state').hidden`)
	s.set(func(s *frontierService) { s.fail = map[string]int{"stats": 503} })
	p.reload()
	p.until(`!document.getElementById('notice').hidden`)
	p.wantIn("#notice", "The state cannot be read: refused with 503[U+202E]. The counts are those of ")
	p.want("#counts dd", "8,000", "34", "1,200", "56", "710")
	s.set(func(s *frontierService) { s.fail = nil })
	p.reload()
	p.until(`document.getElementById('notice').hidden`)
	p.wantIn("#log", "The service answers again.")
	eval[bool](p, `(window.fetch = () => Promise.reject(new TypeError('no connection')), true)`)
	p.reload()
	p.until(`!document.getElementById('notice').hidden`)
	p.wantIn("#notice", "The state cannot be read: the service cannot be reached.")
}

func TestFrontierToken(t *testing.T) {
	s := &frontierService{token: "sesame"}
	p := openFrontier(t, s)
	p.expect("401 (Unauthorized)")
	p.until(`document.activeElement.id === 'token'`)
	if n := s.count("stats"); n != 0 || eval[bool](p, `document.getElementById('state').checkVisibility()`) {
		t.Errorf("without a token the page sent %d requests", n)
	}
	p.do(chromedp.KeyEvent("wrong"), chromedp.KeyEvent(kb.Enter))
	p.until(`!document.getElementById('notice').hidden`)
	p.want("#notice", "The service does not accept this token.")
	p.set("token", "sesame")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`!document.getElementById('state').hidden && document.getElementById('token-form').hidden`)
	p.want("#badge", "Running")
	if eval[bool](p, `document.documentElement.outerHTML.includes('sesame')`) {
		t.Error("the token is in the document")
	}
}

// TestFrontierPause pauses and resumes with the keyboard alone.
func TestFrontierPause(t *testing.T) {
	s := &frontierService{}
	p := openFrontier(t, s)
	p.expect("403 (Forbidden)")
	p.until(`!document.getElementById('state').hidden`)
	press := func(id string) {
		t.Helper()
		eval[bool](p, fmt.Sprintf(`(document.getElementById(%q).focus(), true)`, id))
		p.do(chromedp.KeyEvent(kb.Enter))
	}
	press("pause")
	p.want("#confirm-title", "Pause the crawl?")
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.getElementById('confirm').open`)
	press("pause")
	press("confirm-no")
	p.until(`!document.getElementById('confirm').open`)
	if n := s.count("pause"); n != 0 {
		t.Errorf("%d calls without a confirmation", n)
	}
	if got := eval[string](p, `document.activeElement.id`); got != "pause" {
		t.Errorf("after the dialog the focus is at %q", got)
	}
	s.set(func(s *frontierService) { s.fail = map[string]int{"pause": 403} })
	press("pause")
	press("confirm-yes")
	p.until(`!document.getElementById('confirm-error').hidden`)
	p.want("#confirm-error", "Not paused: refused with 403[U+202E].")
	s.set(func(s *frontierService) { s.fail = nil })
	press("confirm-yes")
	p.until(`document.getElementById('badge').textContent === 'Paused' && !document.getElementById('confirm').open`)
	p.want("#pause", "Resume")
	press("pause")
	p.want("#confirm-title", "Resume the crawl?")
	press("confirm-yes")
	p.until(`document.getElementById('badge').textContent === 'Running'`)
	if n := s.count("resume"); n != 1 {
		t.Errorf("%d calls of Resume, want 1", n)
	}
}

func TestFrontierWhy(t *testing.T) {
	s := &frontierService{}
	p := openFrontier(t, s)
	p.expect("404 (Not Found)")
	p.expect("400 (Bad Request)")
	p.until(`!document.getElementById('state').hidden`)
	p.click("ask")
	p.want("#why", "Give a URL.")
	p.set("url", " http://a.test/x ")
	p.click("ask")
	p.until(`document.getElementById('why').textContent === 'The frontier does not have this URL.'`)
	s.set(func(s *frontierService) {
		s.why = &pb.WhyResponse{Reasons: []string{"It failed for good (http_client_error): the page is not there.", "Second\u202e"}, Url: "http://a.test/x", Host: "a.test",
			Status: pb.Status_STATUS_DEAD, Kind: pb.Kind_KIND_PAGE, Depth: 3, ParentUrl: "http://a.test/", Metadata: `{"a":"<i>"}`, StatusCode: 404,
			LastError: "http_client_error: 404 Not Found", FailureCount: 1, FetchTime: timestamppb.New(time.Now().Add(-time.Hour))}
	})
	p.click("ask")
	p.until(`document.querySelectorAll('#why li').length === 2`)
	p.want("#why li", "It failed for good (http_client_error): the page is not there.", "Second[U+202E]")
	p.want("#why dt", "URL", "Host", "Status", "Kind", "Depth", "Linked by", "Metadata", "Last status", "Last failure", "Failures", "Fetched")
	p.want("#why dd", "http://a.test/x", "a.test", "dead", "page", "3", "http://a.test/", `{"a":"<i>"}`, "404", "http_client_error: 404 Not Found", "1 since the last success", "60 min ago")
	s.set(func(s *frontierService) { s.fail = map[string]int{"why": 400} })
	p.click("ask")
	p.until(`document.getElementById('why').textContent === 'Not answered: refused with 400[U+202E].'`)
}

// TestFrontierWatch checks that the newest 50 outcomes are shown, and that a broken stream is
// reported.
func TestFrontierWatch(t *testing.T) {
	s := &frontierService{watched: make(chan *pb.WatchResponse)}
	p := openFrontier(t, s)
	p.until(`!document.getElementById('state').hidden`)
	p.click("watch")
	id := int64(0)
	for range 4 {
		message := &pb.WatchResponse{}
		for range 30 {
			id++
			message.Outcomes = append(message.Outcomes, &pb.RecordedOutcome{Id: id, Url: fmt.Sprintf("http://a.test/%d", id), Status: pb.Status_STATUS_FETCHED, StatusCode: 200,
				FetchDuration: durationpb.New(20 * time.Millisecond), BodyBytes: 2048})
		}
		s.watched <- message
	}
	s.watched <- &pb.WatchResponse{Outcomes: []*pb.RecordedOutcome{{Id: id + 1, Url: "http://a.test/gone", Status: pb.Status_STATUS_DEAD, StatusCode: 404, ErrorClass: "http_client_error"}}}
	p.until(`document.querySelector('#outcomes td')?.textContent === 'http://a.test/gone'`)
	p.want("#outcomes tr:first-child td", "http://a.test/gone", "404 http_client_error", "0 ms", "0 bytes")
	p.want("#outcomes tr:nth-child(2) td", "http://a.test/120", "200 fetched", "20 ms", "2.0 KiB")
	if n := len(p.text("#outcomes tr")); n != 50 {
		t.Errorf("%d outcomes are shown, want 50", n)
	}
	p.click("watch")
	rig.Until(p.ctx, t, "the stream ends", func() bool { return s.watching() == 0 })
	p.click("watch")
	s.watched <- &pb.WatchResponse{Outcomes: []*pb.RecordedOutcome{{Id: id + 2, Url: "http://a.test/again", Status: pb.Status_STATUS_FAILED, ErrorClass: "connect_timeout"}}}
	p.until(`document.querySelector('#outcomes td').textContent === 'http://a.test/again'`)
	close(s.watched)
	p.until(`document.getElementById('watch-hint').textContent === 'Watch has ended: the connection broke.'`)
	p.until(`document.getElementById('watch').getAttribute('aria-pressed') === 'false'`)
}

// hostile returns a state whose texts come from an attacker, with lists as long as they can be.
func hostile() *pb.StatsResponse {
	const markup = `<img src=x onerror=window.pwned=1><script>window.pwned=1</script>`
	s := crawl()
	s.ErrorClasses, s.SlowestHosts, s.ClosedHosts, s.Workers = nil, nil, nil, nil
	for i := range 100 {
		name := []string{markup, "a\u202eb\x1b[31m\x00", "אבגד.مثال.test", strings.Repeat("long-label.", 22) + "test:65535", "xn--mgbh0fb.test"}[i%5]
		name = fmt.Sprintf("%s%d", name, i)
		host := &pb.HostStats{Host: name, FetchCount: 1 << 62, FailureCount: 1 << 61, MeanFetchDuration: durationpb.New(time.Hour), BodyBytes: 1 << 62, InFlightCount: 1000,
			BlockEndTime: timestamppb.New(time.Now().Add(23 * time.Hour)), Paused: true}
		s.SlowestHosts, s.ClosedHosts = append(s.SlowestHosts, host), append(s.ClosedHosts, host)
		s.Workers = append(s.Workers, &pb.WorkerStats{Worker: name, ClaimedCount: 1 << 62})
		if i < 50 {
			s.ErrorClasses = append(s.ErrorClasses, &pb.ClassCount{ErrorClass: name, FailedCount: int64(i), DeadCount: 1 << 62})
		}
	}
	return s
}

// TestFrontierHostileText checks that hosts, classes and workers stay text, and that the page does
// not scroll sideways, whatever they contain.
func TestFrontierHostileText(t *testing.T) {
	const markup = `<img src=x onerror=window.pwned=1>`
	s := &frontierService{stats: hostile(), watched: make(chan *pb.WatchResponse, 1), why: &pb.WhyResponse{Reasons: []string{markup}, Url: "http://" + markup, Host: markup, LastError: markup + "\u202e", Metadata: strings.Repeat("x", 4096)}}
	s.watched <- &pb.WatchResponse{Outcomes: []*pb.RecordedOutcome{{Id: 1, Url: "javascript:" + markup, FinalUrl: strings.Repeat("y", 8000), ErrorClass: markup, Status: pb.Status_STATUS_DEAD}}}
	p := openFrontier(t, s)
	p.until(`document.querySelectorAll('#slowest tr').length === 100`)
	p.set("url", markup)
	p.click("ask")
	p.click("watch")
	p.until(`document.querySelectorAll('#why li').length === 1 && document.querySelectorAll('#outcomes tr').length === 1`)
	p.wantIn("#slowest", markup)
	p.wantIn("#workers", "a[U+202E]b[U+001B][31m[U+0000]1")
	if got := eval[string](p, `[typeof window.pwned, document.scripts.length, document.querySelectorAll('main img, main script, main iframe, a[href]').length].join()`); got != "undefined,1,0" {
		t.Errorf("the page was changed: %s", got)
	}
	if got := eval[bool](p, `[...document.querySelectorAll('#slowest bdi')].every((e) => e.dir === 'ltr' && getComputedStyle(e).unicodeBidi === 'isolate')`); !got {
		t.Error("a host can reorder the text around it")
	}
	for _, width := range []int64{320, 390, 640, 1280} {
		p.do(chromedp.EmulateViewport(width, 800))
		wide := eval[[]string](p, `[...document.querySelectorAll('body *')].filter((e) => !e.closest('.visually-hidden, .scroll > *') && e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.tagName + '.' + e.className + '#' + e.id)`)
		if got := eval[int64](p, `document.documentElement.scrollWidth`); got > width || len(wide) > 0 {
			t.Errorf("in a window of %d px the page is %d px wide; beyond the edge are %q", width, got, wide)
		}
	}
}

// TestFrontierAxe checks the page with axe-core in each width and scheme.
func TestFrontierAxe(t *testing.T) {
	s := &frontierService{watched: make(chan *pb.WatchResponse, 1), why: &pb.WhyResponse{Reasons: []string{"It waits."}, Url: "http://a.test/", Host: "a.test", Status: pb.Status_STATUS_PENDING, Metadata: "{}"}}
	s.watched <- &pb.WatchResponse{Outcomes: []*pb.RecordedOutcome{{Id: 1, Url: "http://a.test/", Status: pb.Status_STATUS_FETCHED, StatusCode: 200}, {Id: 2, Url: "http://b.test/", Status: pb.Status_STATUS_FAILED, ErrorClass: "connect_timeout"}}}
	p := openFrontier(t, s)
	p.until(`!document.getElementById('state').hidden`)
	p.set("url", "http://a.test/")
	p.click("ask")
	p.click("watch")
	p.until(`document.querySelectorAll('#why li').length === 1 && document.querySelectorAll('#outcomes tr').length === 2`)
	check := p.axe()
	for _, width := range []int64{1280, 390, 320} {
		p.do(chromedp.EmulateViewport(width, 844))
		check(fmt.Sprintf("%d px, light", width), everyRule, 20)
		p.scheme("dark", "reduce")
		check(fmt.Sprintf("%d px, dark", width), contrastRule, 1)
		p.scheme("light", "reduce")
	}
	p.click("pause")
	p.until(`document.getElementById('confirm').open`)
	check("the dialog", everyRule, 10)
	p.click("confirm-no")
	p.until(`!document.getElementById('confirm').open`)
	for _, stats := range []*pb.StatsResponse{{}, {PendingCount: 5, Paused: true}, {FetchedCount: 7, DeadCount: 1}} {
		s.set(func(s *frontierService) { s.stats = stats })
		p.reload()
		p.until(`document.getElementById('badge').textContent !== 'Running'`)
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme, "reduce")
			check(p.text("#badge")[0]+", "+scheme, contrastRule, 1)
		}
	}
}

// TestFrontierKeyboard checks that Tab reaches every control and each table that scrolls, with a
// visible focus.
func TestFrontierKeyboard(t *testing.T) {
	p := openFrontier(t, &frontierService{})
	p.until(`!document.getElementById('state').hidden`)
	reached := []string{}
	for range 30 {
		p.do(chromedp.KeyEvent(kb.Tab))
		at := eval[string](p, `document.activeElement.id || document.activeElement.tagName`)
		if at == "BODY" || slices.Contains(reached, at) {
			break
		}
		reached = append(reached, at)
		if !eval[bool](p, `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 })()`) {
			t.Errorf("the focus on %s is not visible", at)
		}
	}
	if want := []string{"pause", "url", "ask", "classes-box", "more-hosts", "closed-box", "slowest-box", "workers-box", "watch"}; !slices.Equal(reached, want) {
		t.Errorf("Tab reaches %q, want %q", reached, want)
	}
}

// TestFrontierServed uses the page with the real service and a database.
func TestFrontierServed(t *testing.T) {
	needBrowser(t)
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "frontier.db"), store.Config{Delay: time.Hour})
	must.Succeed(t, err)
	s, err := api.New(api.Config{Store: db, UserAgent: "test", Page: frontierpage.Handler(frontierpage.Config{Version: "v0-test"})})
	must.Succeed(t, err)
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- s.ServeWeb(l) }()
	t.Cleanup(func() {
		_ = s.Shutdown(t.Context()) // the context has ended, so running calls are cancelled
		if err := errors.Join(<-served, db.Close()); err != nil {
			t.Error(err)
		}
	})
	p := &page{T: t, path: "/console/", base: "http://" + l.Addr().String(), findings: new(findings)}
	client := &http.Client{Transport: new(http.Transport), Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	post := func(method string, in, out proto.Message) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.base+"/v1/"+method, strings.NewReader(string(jsonOf(in))))
		must.Succeed(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		must.Succeed(t, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read
		if err == nil {
			err = protojson.Unmarshal(text, out)
		}
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %s %s %v", method, resp.Status, text, err)
		}
	}
	p.browse()
	p.visit("")
	p.until(`document.getElementById('badge').textContent === 'Empty'`)
	p.click("watch")
	post("put", &pb.PutRequest{Entries: []*pb.Entry{{Url: "http://a.test/x"}, {Url: "http://b.test/"}, {Url: "http://b.test/2"}}}, &pb.PutResponse{})
	var claims pb.ClaimResponse
	post("claim", &pb.ClaimRequest{Limit: 3, Worker: "tester"}, &claims)
	if len(claims.GetClaims()) != 2 {
		t.Fatalf("%d claims, want one of each host", len(claims.GetClaims()))
	}
	outcome := &pb.Outcome{Status: pb.Status_STATUS_DEAD, AttemptCount: 1, StatusCode: 404, ErrorClass: "http_client_error", LastError: "404", FetchDuration: durationpb.New(time.Second)}
	for _, claim := range claims.GetClaims() {
		if claim.GetHost() == "a.test" {
			outcome.Lease = claim.GetLease()
		}
	}
	post("block", &pb.BlockRequest{Host: "b.test", RetryAfter: durationpb.New(10 * time.Minute)}, &pb.BlockResponse{})
	post("record", &pb.RecordRequest{Outcomes: []*pb.Outcome{outcome}}, &pb.RecordResponse{})
	p.until(`document.querySelector('#classes td')?.textContent === 'http_client_error' && document.querySelector('#slowest td')?.textContent === 'a.test' && document.querySelector('#outcomes td')`)
	p.want("#workers tr td", "tester", "1", "only claims")
	p.want("#counts dd", "0", "1", "1", "0", "1")
	p.want("#outcomes tr td", "http://a.test/x", "404 http_client_error", "1 s", "0 bytes")
	p.wantIn("#closed td:nth-child(2)", "blocked, opens in ")
	p.wantIn("#headline", "1 of 3 URLs are done (33.3 %)")
	p.set("url", "http://a.test/x")
	p.click("ask")
	p.until(`document.querySelectorAll('#why li').length > 0`)
	p.wantIn("#why dd", "http_client_error: 404")
	p.click("pause")
	p.click("confirm-yes")
	p.until(`document.getElementById('badge').textContent === 'Paused'`)
	if n, err := db.Counts(t.Context()); err != nil || !n.Paused {
		t.Errorf("the frontier is not paused: %+v, %v", n, err)
	}
}
