package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"fetchd/test/bench/report"
)

// subject is a load on a service or on the origin. In a group, its name is unique.
type subject struct {
	name    string
	service string // the service it uses; empty means none
	program string // the caller: go, python, node or curl
	kind    string
	from    string // the listener of the origin: http, https or h2
	path    string
	open    int
	hold    bool // holds fetches open instead of a load
	decide  bool // measures decisions of package classify instead of a load
	faults  bool // some fetches may fail
}

// mode is how a row compares its subjects.
type mode int

const (
	ratio mode = iota
	difference
	alone // there is no second subject, or it is only listed
)

// row is a line of the table. It compares a figure of one subject with that of another, and with that of
// the same relay with fetchd's heap rule if there is one.
type row struct {
	name, what string
	of, base   subject // base may be empty
	heap       subject // the relay of base with fetchd's heap rule; may be empty
	figure     figure
	mode       mode
	goal       report.Goal
}

// group is a set of subjects that are measured together.
type group struct {
	name, title  string
	rows         []row
	share        int           // uses one in so many of the rounds; 0 means all
	warmup, span time.Duration // 0 means the values of the run
	fresh        bool          // starts new services for every run
}

// subjects returns the subjects of the rows, each once.
func (g *group) subjects() []subject {
	var all []subject
	for _, r := range g.rows {
		for _, s := range []subject{r.base, r.heap, r.of} {
			if s.name != "" && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// rounds returns the number of rounds of the group if the run has n.
func (g *group) rounds(n int) int {
	share := max(g.share, 1)
	return (n + share - 1) / share
}

const smallPath = "/b/1024"

// through returns a load from Go on a service.
func through(name, service, kind string) subject {
	return subject{name: name, service: service, program: "go", kind: kind, from: "http", path: smallPath, open: 64}
}

// by returns a load from a program. If its kind is one of gRPC, it uses fetchd.
func by(name, program, kind string) subject {
	s := through(name, "", kind)
	s.program = program
	if strings.HasPrefix(kind, "grpc-") {
		s.service = "fetchd"
	}
	return s
}

// on returns a copy of a load with another path and number of fetches in flight.
func (s subject) on(path string, open int) subject {
	s.path, s.open = path, open
	return s
}

// withHeap returns a load on the relay as one on the relay with fetchd's heap rule.
func (s subject) withHeap() subject {
	s.name, s.service = s.name+", heap of fetchd", "relay-heap"
	return s
}

// held returns fetches that are held open.
func held(name, service, kind, path string) subject {
	s := through(name, service, kind).on(path, 10_000)
	s.hold = true
	return s
}

var (
	relayUnary  = through("relay, FetchUnary", "relay", "grpc-unary")
	fetchdUnary = through("fetchd, FetchUnary", "fetchd", "grpc-unary")
	fetchdMany  = through("fetchd, FetchMany", "fetchd", "grpc-many")
)

// plan returns everything that is measured, in order.
func plan() []group {
	relayStream, fetchdStream := through("relay, Fetch", "relay", "grpc-stream"), through("fetchd, Fetch", "fetchd", "grpc-stream")
	engine := by("package fetch", "go", "engine")
	relayLarge := through("relay, Fetch of 16 MiB", "relay", "grpc-stream").on("/b/16777216", 4)
	fetchdLarge := through("fetchd, Fetch of 16 MiB", "fetchd", "grpc-stream").on("/b/16777216", 4)
	fetchdStore := through("fetchd, 16 MiB into a store", "fetchd", "grpc-store").on("/b/16777216", 4)
	decide := subject{name: "classify.Decide", decide: true}
	return slices.Concat([]group{
		{name: "unary", title: "1 KiB, 64 open", rows: []row{
			{name: "unary", what: "FetchUnary of 1 KiB: fetchd with its guard, metrics and log, compared with the bare relay",
				of: fetchdUnary, base: relayUnary, heap: relayUnary.withHeap(), figure: serviceCPU, goal: report.AtMost(1.25)},
			{name: "unary-traced", what: "the same with traces of 0.1 % of the fetches",
				of: through("fetchd with traces, FetchUnary", "traced", "grpc-unary"), base: relayUnary, figure: serviceCPU, goal: report.AtMost(1.35)},
			{name: "many", what: "FetchMany of 1 KiB, 16 tasks a message, compared with one FetchUnary each on the bare relay",
				of: fetchdMany, base: relayUnary, heap: relayUnary.withHeap(), figure: serviceCPU, goal: report.AtMost(0.76)},
		}},
		{name: "stream", title: "1 KiB, 64 open, streamed", rows: []row{
			{name: "stream", what: "Fetch of 1 KiB with its default events, compared with the bare relay's four messages",
				of: fetchdStream, base: relayStream, heap: relayStream.withHeap(), figure: serviceCPU, goal: report.AtMost(1.38)},
		}},
		{name: "record", title: "1 KiB, 64 open, recorded", rows: []row{
			{name: "record", what: "FetchUnary of 1 KiB that is recorded in WARC files, compared with the same without records",
				of: through("fetchd, FetchUnary, recorded", "fetchd", "grpc-unary-record"), base: fetchdUnary, figure: serviceCPU, goal: report.AtMost(1.15)},
			{name: "record-many", what: "the same with FetchMany",
				of: through("fetchd, FetchMany, recorded", "fetchd", "grpc-many-record"), base: fetchdMany, figure: serviceCPU},
		}},
		{name: "proxies", title: "1 KiB, 64 open, reverse proxies in C", share: 2, rows: []row{
			{name: "nginx", what: "nginx as a reverse proxy, compared with the bare relay",
				of: through("nginx", "nginx", "net-http"), base: relayUnary, figure: serviceCPU},
			{name: "squid", what: "squid as a reverse proxy, compared with the bare relay",
				of: through("squid", "squid", "net-http"), base: relayUnary, figure: serviceCPU},
		}},
		{name: "engine", title: "1 KiB, 64 open, in the caller's process", rows: []row{
			{name: "engine", what: "the engine alone, in the caller's process, compared with go-retryablehttp",
				of: engine, base: by("go-retryablehttp", "go", "retryablehttp"), figure: callerCPU, goal: report.AtMost(1.15)},
			{name: "engine-net-http", what: "the same compared with net/http alone",
				of: engine, base: by("net/http", "go", "net-http"), figure: callerCPU},
		}},
		{name: "large", title: "16 MiB, 4 open, streamed", rows: []row{
			{name: "large", what: "Fetch of 16 MiB with its SHA-256, compared with the bare relay with the same in chunks of 31 KiB",
				of: fetchdLarge, base: relayLarge, figure: volume, goal: report.AtLeast(0.93)},
			{name: "large-many", what: "tasks of FetchMany of 16 MiB with streamed bodies, compared with Fetch of the same",
				of: through("fetchd, FetchMany of 16 MiB", "fetchd", "grpc-many-stream").on("/b/16777216", 4), base: fetchdLarge, figure: volume, goal: report.AtLeast(0.95)},
			{name: "large-store", what: "bodies of 16 MiB that fetchd writes into a directory, synced to the disk, compared with Fetch of the same",
				of: fetchdStore, base: fetchdLarge, figure: volume, goal: report.AtLeast(1.2)},
			{name: "large-store-all", what: "the same, with what the caller computes", of: fetchdStore, base: fetchdLarge, figure: allVolume},
		}},
	}, languages(), []group{
		{name: "latency", title: "1 KiB, one open", rows: []row{
			{name: "latency", what: "one fetch at a time: FetchUnary less net/http called directly",
				of:   through("fetchd, FetchUnary, one open", "fetchd", "grpc-unary").on(smallPath, 1),
				base: by("net/http, one open", "go", "net-http").on(smallPath, 1), figure: p50, mode: difference, goal: report.AtMost(200)},
		}},
		// The delay of the origin is such that 2,500 fetches end per second. It takes 4 s until
		// all are in flight.
		{name: "crowd", title: "1 KiB, the origin answers after a while, 2,500/s", share: 2, warmup: 5 * time.Second, span: 4 * time.Second, rows: []row{
			{name: "crowd", what: "10,000 fetches open compared with 64, both 2,500 a second",
				of:   through("fetchd, 10,000 open", "fetchd", "grpc-unary").on("/w/4s/1024", 10_000),
				base: through("fetchd, 64 open", "fetchd", "grpc-unary").on("/w/25.6ms/1024", 64), figure: serviceCPU, goal: report.AtMost(1.35)},
		}},
		{name: "decide", title: "a decision", rows: []row{
			{name: "decide", what: "one decision of package classify", of: decide, figure: single, mode: alone, goal: report.AtMost(100)},
			{name: "decide-allocations", what: "allocations of one", of: decide, figure: allocations, mode: alone, goal: report.AtMost(0)},
		}},
	}, matrix(), waiting())
}

// languages returns the groups with callers that are not written in Go.
func languages() []group {
	asyncio := by("Python, FetchUnary over asyncio", "python", "grpc-unary")
	requests, aiohttp := by("Python, requests with urllib3's Retry", "python", "requests"), by("Python, aiohttp", "python", "aiohttp")
	asyncPackage := by("Python, package fetchd over asyncio", "python", "grpc-package")
	http2, many := by("Node, FetchUnary over node:http2", "node", "grpc-unary-http2"), by("Node, FetchMany", "node", "grpc-many")
	fetch, fetchMany := by("Node, fetch of the package", "node", "grpc-package"), by("Node, fetchMany of the package", "node", "grpc-package-many")
	got, undici := by("Node, got", "node", "got"), by("Node, undici RetryAgent", "node", "undici")
	return []group{
		{name: "python", title: "1 KiB, 64 open, from Python", rows: []row{
			{name: "python-rate", what: "from Python: FetchUnary over asyncio compared with requests with urllib3's Retry",
				of: asyncio, base: requests, figure: rate, goal: report.AtLeast(5)},
			{name: "python-cpu", what: "the same, what the caller computes", of: asyncio, base: requests, figure: callerCPU, goal: report.AtMost(0.12)},
			{name: "python-aiohttp", what: "from Python: FetchUnary over asyncio compared with aiohttp",
				of: asyncio, base: aiohttp, figure: rate, goal: report.AtLeast(1.2)},
			{name: "python-package", what: "from Python: get of package fetchd over asyncio compared with FetchUnary of bare stubs",
				of: asyncPackage, base: asyncio, figure: rate, goal: report.AtLeast(0.9)},
			{name: "python-package-cpu", what: "the same, what the caller computes", of: asyncPackage, base: asyncio, figure: callerCPU, goal: report.AtMost(1.1)},
			{name: "python-package-aiohttp", what: "from Python: get of package fetchd over asyncio compared with aiohttp",
				of: asyncPackage, base: aiohttp, figure: rate, goal: report.AtLeast(2)},
			{name: "python-package-requests", what: "from Python: get of package fetchd over asyncio compared with requests with urllib3's Retry",
				of: asyncPackage, base: requests, figure: rate, goal: report.AtLeast(8)},
			{name: "python-package-threads", what: "from Python: get of package fetchd in threads compared with requests with urllib3's Retry",
				of: by("Python, package fetchd in threads", "python", "grpc-package-threads"), base: requests, figure: rate},
		}},
		{name: "uvloop", title: "1 KiB, 64 open, from Python with uvloop", share: 2, rows: []row{
			{name: "python-uvloop", what: "the same, both on uvloop", of: by("Python, FetchUnary on uvloop", "python", "grpc-unary-uvloop"),
				base: by("Python, aiohttp on uvloop", "python", "aiohttp-uvloop"), figure: rate},
		}},
		{name: "node", title: "1 KiB, 64 open, from Node", warmup: 2 * time.Second, rows: []row{
			{name: "node-unary", what: "from Node: FetchUnary over node:http2 compared with got", of: http2, base: got, figure: rate, goal: report.AtLeast(1.6)},
			{name: "node-grpc-js", what: "the same with the gRPC library for Node, @grpc/grpc-js",
				of: by("Node, FetchUnary with grpc-js", "node", "grpc-unary"), base: got, figure: rate},
			{name: "node-many", what: "from Node: FetchMany compared with got", of: many, base: got, figure: rate, goal: report.AtLeast(3)},
			{name: "node-package", what: "from Node: fetch of the package, with a standard Response, compared with FetchUnary over node:http2", of: fetch, base: http2,
				figure: rate, goal: report.AtLeast(0.9)},
			{name: "node-package-cpu", what: "the same, what the caller computes", of: fetch, base: http2, figure: callerCPU, goal: report.AtMost(1.1)},
			{name: "node-package-inline", what: "the same with delivery `inline`, which the package sends over FetchMany",
				of: by("Node, fetch of the package, inline", "node", "grpc-package-inline"), base: http2, figure: callerCPU},
			{name: "node-package-many", what: "from Node: fetchMany of the package compared with FetchMany", of: fetchMany, base: many, figure: rate, goal: report.AtLeast(0.9)},
			{name: "node-package-many-cpu", what: "the same, what the caller computes", of: fetchMany, base: many, figure: callerCPU, goal: report.AtMost(1.1)},
			{name: "node-unary-undici", what: "from Node: FetchUnary over node:http2 compared with undici's RetryAgent", of: http2, base: undici, figure: rate},
			{name: "node-many-undici", what: "from Node: FetchMany compared with undici's RetryAgent", of: many, base: undici, figure: rate},
		}},
		{name: "curl", title: "1 KiB, curl", share: 3, rows: []row{
			{name: "curl", what: "FetchUnary compared with a process of curl for each fetch, 8 at once", of: fetchdUnary,
				base: by("curl, a process for each fetch", "curl", "curl").on(smallPath, 8), figure: allCPU},
			{name: "curl-parallel", what: "FetchUnary compared with one curl --parallel",
				of: fetchdUnary, base: by("curl --parallel", "curl", "curl-parallel"), figure: allCPU},
		}},
	}
}

// matrix changes one property at a time of the base case, which is group unary: FetchUnary of
// 1 KiB over HTTP/1.1, 64 in flight, no faults.
func matrix() []group {
	one := func(name, title, path, from string, open int) group {
		fetchd, relay := through("fetchd, "+title, "fetchd", "grpc-unary").on(path, open), through("relay, "+title, "relay", "grpc-unary").on(path, open)
		fetchd.from, relay.from = from, from
		return group{name: name, title: title, share: 2, rows: []row{
			{name: name, what: "FetchUnary, " + title + ", compared with the bare relay", of: fetchd, base: relay, figure: serviceCPU},
		}}
	}
	crowded := one("open-1000", "1,000 open", smallPath, "http", 1000)
	crowded.rows[0].heap, crowded.rows[0].goal = crowded.rows[0].base.withHeap(), report.AtMost(1.32)
	faults := through("fetchd, 10 % faults", "fetchd", "grpc-unary").on("/f/10/1024", 64)
	faults.faults = true
	return []group{
		{name: "outcome", title: "event level OUTCOME", share: 2, rows: []row{
			{name: "outcome", what: "FetchUnary that asks for the outcome alone, compared with the bare relay",
				of: through("fetchd, the outcome alone", "fetchd", "grpc-unary-outcome"), base: relayUnary, figure: serviceCPU},
		}},
		one("64k", "64 KiB", "/b/65536", "http", 64),
		one("tls", "TLS", smallPath, "https", 64),
		one("h2", "HTTP/2", smallPath, "h2", 64),
		one("open-1", "one open", smallPath, "http", 1),
		crowded,
		{name: "many-1000", title: "FetchMany, 1,000 open", share: 2, rows: []row{
			{name: "many-1000", what: "FetchMany, 1,000 tasks open",
				of: through("fetchd, FetchMany, 1,000 open", "fetchd", "grpc-many").on(smallPath, 1000), figure: serviceCPU, mode: alone},
		}},
		{name: "faults", title: "10 % faults", share: 2, rows: []row{
			{name: "faults", what: "FetchUnary, 10 of 100 requests answered with 503", of: faults, figure: serviceCPU, mode: alone},
		}},
	}
}

// waiting measures the memory of 10,000 waiting fetches.
func waiting() []group {
	const busy, slow = "/f/100/1024", "/w/5m/1024"
	return []group{
		{name: "backoff", title: "10,000 wait for their next attempt", share: 3, fresh: true, rows: []row{
			{name: "memory-backoff", what: "memory of a Fetch that waits for its next attempt, of 10,000, compared with a stream of the relay on a timer",
				of:   held("fetchd, Fetch in backoff", "fetchd", "grpc-stream", busy),
				base: held("relay, stream on a timer", "timer", "grpc-stream", busy), figure: memory, mode: alone, goal: report.AtMost(20)},
			{name: "memory-many", what: "memory of a task of FetchMany that waits for its next attempt, of 10,000",
				of: held("fetchd, task of FetchMany in backoff", "fetchd", "grpc-many", busy), figure: memory, mode: alone, goal: report.AtMost(12)},
		}},
		{name: "origin", title: "10,000 wait for their origin", share: 3, fresh: true, rows: []row{
			{name: "memory-origin", what: "memory of a fetch that waits for its origin, of 10,000, compared with the bare relay's",
				of:   held("fetchd, FetchUnary at its origin", "fetchd", "grpc-unary", slow),
				base: held("relay, FetchUnary at its origin", "relay", "grpc-unary", slow), figure: memory, mode: alone, goal: report.AtMost(30)},
		}},
	}
}

// selected returns the rows whose names match.
func selected(all []group, only *regexp.Regexp) []group {
	var kept []group
	for _, g := range all {
		g.rows = slices.DeleteFunc(g.rows, func(r row) bool { return !only.MatchString(r.name) })
		if len(g.rows) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}

// list returns the names, goals and descriptions of the rows.
func list(all []group) string {
	text := ""
	for _, g := range all {
		for _, r := range g.rows {
			text += fmt.Sprintf("%-24s %-8s %s\n", r.name, r.goal, r.what)
		}
	}
	return text
}
