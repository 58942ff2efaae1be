package main

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"fetchd/bench/report"
)

// subject is a load on a service or on the origin.
type subject struct {
	name    string
	service string // the service it uses; empty means none
	program string // the caller: go, python, node or curl
	kind    string
	from    string // the listener of the origin: http, https or h2
	path    string
	open    int
	hold    string // holds fetches open instead of a load; see caller.Hold
	decide  bool   // measures decisions of package classify instead of a load
	faults  bool   // some fetches may fail
}

// mode is how a row compares its subjects.
type mode int

const (
	ratio mode = iota
	difference
	alone // there is no second subject, or it is only listed
)

// row is a line of the table. It compares a figure of one subject with that of another.
type row struct {
	name, what string
	of, base   string // names of subjects of the group
	figure     figure
	mode       mode
	goal       report.Goal
}

// group is a set of subjects that are measured together.
type group struct {
	name, title  string
	subjects     []subject
	rows         []row
	share        int           // uses one in so many of the rounds; 0 means all
	warmup, span time.Duration // 0 means the values of the run
	fresh        bool          // starts new services for every run
}

// rounds returns the number of rounds of the group if the run has n.
func (g *group) rounds(n int) int {
	if g.share == 0 {
		return n
	}
	return (n + g.share - 1) / g.share
}

// The usual paths and number of fetches in flight.
const (
	smallPath = "/b/1024"
	largePath = "/b/16777216"
	baseOpen  = 64
)

// through returns a load from Go on a service.
func through(name, service, kind string) subject {
	return subject{name: name, service: service, program: "go", kind: kind, from: "http", path: smallPath, open: baseOpen}
}

// by returns a load from a program. If its kind is one of gRPC, it uses fetchd.
func by(name, program, kind string) subject {
	s := through(name, "", kind)
	s.program = program
	if len(kind) > 5 && kind[:5] == "grpc-" {
		s.service = "fetchd"
	}
	return s
}

// with returns a changed copy of a subject.
func (s subject) with(change func(*subject)) subject {
	change(&s)
	return s
}

// plan returns everything that is measured, in order.
func plan() []group {
	return slices.Concat([]group{
		{name: "unary", title: "1 KiB, 64 open", subjects: []subject{
			through("relay, FetchUnary", "relay", "grpc-unary"),
			through("fetchd, FetchUnary", "fetchd", "grpc-unary"),
			through("fetchd with traces, FetchUnary", "traced", "grpc-unary"),
			through("fetchd, FetchMany", "fetchd", "grpc-many"),
		}, rows: []row{
			{name: "unary", what: "FetchUnary of 1 KiB: fetchd with its guard, metrics and log, compared with the bare relay",
				of: "fetchd, FetchUnary", base: "relay, FetchUnary", figure: serviceCPU, goal: report.AtMost(1.20)},
			{name: "unary-traced", what: "the same with traces of 0.1 % of the fetches",
				of: "fetchd with traces, FetchUnary", base: "relay, FetchUnary", figure: serviceCPU, goal: report.AtMost(1.35)},
			{name: "many", what: "FetchMany of 1 KiB, 16 tasks a message, compared with one FetchUnary each on the bare relay",
				of: "fetchd, FetchMany", base: "relay, FetchUnary", figure: serviceCPU, goal: report.AtMost(0.85)},
		}},
		{name: "stream", title: "1 KiB, 64 open, streamed", subjects: []subject{
			through("relay, Fetch", "relay", "grpc-stream"),
			through("fetchd, Fetch", "fetchd", "grpc-stream"),
		}, rows: []row{
			{name: "stream", what: "Fetch of 1 KiB with its default events, compared with the bare relay's four messages",
				of: "fetchd, Fetch", base: "relay, Fetch", figure: serviceCPU, goal: report.AtMost(1.30)},
		}},
		{name: "engine", title: "1 KiB, 64 open, in the caller's process", subjects: []subject{
			by("net/http", "go", "net-http"),
			by("go-retryablehttp", "go", "retryablehttp"),
			by("package fetch", "go", "engine"),
		}, rows: []row{
			{name: "engine", what: "the engine alone, in the caller's process, compared with go-retryablehttp",
				of: "package fetch", base: "go-retryablehttp", figure: callerCPU, goal: report.AtMost(1.40)},
			{name: "engine-net-http", what: "the same compared with net/http alone",
				of: "package fetch", base: "net/http", figure: callerCPU},
		}},
		{name: "large", title: "16 MiB, 4 open, streamed", subjects: []subject{
			through("relay, Fetch of 16 MiB", "relay", "grpc-stream").with(large),
			through("fetchd, Fetch of 16 MiB", "fetchd", "grpc-stream").with(large),
		}, rows: []row{
			{name: "large", what: "Fetch of 16 MiB with its SHA-256, compared with the bare relay with the same in chunks of 31 KiB",
				of: "fetchd, Fetch of 16 MiB", base: "relay, Fetch of 16 MiB", figure: volume, goal: report.AtLeast(0.95)},
		}},
	}, languages(), []group{
		{name: "latency", title: "1 KiB, one open", subjects: []subject{
			by("net/http, one open", "go", "net-http").with(opened(1)),
			through("relay, FetchUnary, one open", "relay", "grpc-unary").with(opened(1)),
			through("fetchd, FetchUnary, one open", "fetchd", "grpc-unary").with(opened(1)),
		}, rows: []row{
			{name: "latency", what: "one fetch at a time: FetchUnary less net/http called directly",
				of: "fetchd, FetchUnary, one open", base: "net/http, one open", figure: p50, mode: difference, goal: report.AtMost(200)},
		}},
		crowd(), decision(),
	}, matrix(), waiting())
}

func large(s *subject) { s.path, s.open = largePath, 4 }

func opened(n int) func(*subject) { return func(s *subject) { s.open = n } }

// languages returns the groups with callers that are not written in Go.
func languages() []group {
	return []group{
		{name: "python", title: "1 KiB, 64 open, from Python", subjects: []subject{
			by("Python, FetchUnary over asyncio", "python", "grpc-unary"),
			by("Python, requests with urllib3's Retry", "python", "requests"),
			by("Python, aiohttp", "python", "aiohttp"),
		}, rows: []row{
			{name: "python-rate", what: "from Python: FetchUnary over asyncio compared with requests with urllib3's Retry",
				of: "Python, FetchUnary over asyncio", base: "Python, requests with urllib3's Retry", figure: rate, goal: report.AtLeast(5)},
			{name: "python-cpu", what: "the same, what the caller computes",
				of: "Python, FetchUnary over asyncio", base: "Python, requests with urllib3's Retry", figure: callerCPU, goal: report.AtMost(0.12)},
			{name: "python-aiohttp", what: "from Python: FetchUnary over asyncio compared with aiohttp",
				of: "Python, FetchUnary over asyncio", base: "Python, aiohttp", figure: rate, goal: report.AtLeast(1.2)},
		}},
		{name: "uvloop", title: "1 KiB, 64 open, from Python with uvloop", share: 2, subjects: []subject{
			by("Python, FetchUnary on uvloop", "python", "grpc-unary-uvloop"),
			by("Python, aiohttp on uvloop", "python", "aiohttp-uvloop"),
		}, rows: []row{
			{name: "python-uvloop", what: "the same, both on uvloop",
				of: "Python, FetchUnary on uvloop", base: "Python, aiohttp on uvloop", figure: rate},
		}},
		{name: "node", title: "1 KiB, 64 open, from Node", warmup: 2 * time.Second, subjects: []subject{
			by("Node, FetchUnary with grpc-js", "node", "grpc-unary"),
			by("Node, FetchUnary over node:http2", "node", "grpc-unary-http2"),
			by("Node, FetchMany", "node", "grpc-many"),
			by("Node, got", "node", "got"),
			by("Node, undici RetryAgent", "node", "undici"),
		}, rows: []row{
			{name: "node-unary", what: "from Node: FetchUnary over node:http2 compared with got",
				of: "Node, FetchUnary over node:http2", base: "Node, got", figure: rate, goal: report.AtLeast(1.6)},
			{name: "node-grpc-js", what: "the same with the gRPC library for Node, @grpc/grpc-js",
				of: "Node, FetchUnary with grpc-js", base: "Node, got", figure: rate},
			{name: "node-many", what: "from Node: FetchMany compared with got",
				of: "Node, FetchMany", base: "Node, got", figure: rate, goal: report.AtLeast(3)},
			{name: "node-unary-undici", what: "from Node: FetchUnary over node:http2 compared with undici's RetryAgent",
				of: "Node, FetchUnary over node:http2", base: "Node, undici RetryAgent", figure: rate},
			{name: "node-many-undici", what: "from Node: FetchMany compared with undici's RetryAgent",
				of: "Node, FetchMany", base: "Node, undici RetryAgent", figure: rate},
		}},
		{name: "curl", title: "1 KiB, curl", share: 3, subjects: []subject{
			through("fetchd, FetchUnary", "fetchd", "grpc-unary"),
			by("curl, a process for each fetch", "curl", "curl").with(opened(8)),
			by("curl --parallel", "curl", "curl-parallel"),
		}, rows: []row{
			{name: "curl", what: "FetchUnary compared with a process of curl for each fetch, 8 at once",
				of: "fetchd, FetchUnary", base: "curl, a process for each fetch", figure: allCPU},
			{name: "curl-parallel", what: "FetchUnary compared with one curl --parallel",
				of: "fetchd, FetchUnary", base: "curl --parallel", figure: allCPU},
		}},
	}
}

// crowd compares many fetches in flight with few at the same rate. The delay of the origin
// is such that 2,500 fetches end per second.
func crowd() group {
	return group{name: "crowd", title: "1 KiB, the origin answers after a while, 2,500/s", share: 2,
		warmup: 5 * time.Second, span: 4 * time.Second, // it takes 4 s until all are in flight
		subjects: []subject{
			through("fetchd, 64 open", "fetchd", "grpc-unary").with(func(s *subject) { s.path = "/w/25.6ms/1024" }),
			through("fetchd, 10,000 open", "fetchd", "grpc-unary").with(func(s *subject) { s.path, s.open = "/w/4s/1024", 10_000 }),
		}, rows: []row{
			{name: "crowd", what: "10,000 fetches open compared with 64, both 2,500 a second",
				of: "fetchd, 10,000 open", base: "fetchd, 64 open", figure: serviceCPU, goal: report.AtMost(1.3)},
		}}
}

// decision measures how long package classify takes to decide.
func decision() group {
	decide := subject{name: "classify.Decide", decide: true}
	return group{name: "decide", title: "a decision", subjects: []subject{decide}, rows: []row{
		{name: "decide", what: "one decision of package classify", of: decide.name, figure: single, mode: alone, goal: report.AtMost(100)},
		{name: "decide-allocations", what: "allocations of one", of: decide.name, figure: allocations, mode: alone, goal: report.AtMost(0)},
	}}
}

// selected returns the rows whose names match, and the subjects that they need.
func selected(all []group, only *regexp.Regexp) []group {
	var kept []group
	for _, g := range all {
		g.rows = slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return !only.MatchString(r.name) })
		g.subjects = slices.DeleteFunc(slices.Clone(g.subjects), func(s subject) bool {
			return !slices.ContainsFunc(g.rows, func(r row) bool { return r.of == s.name || r.base == s.name })
		})
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
