//go:build linux

package limits

// row is one hostile shape.
type row struct {
	name   string
	gate   string // the setting under which the gate runs it
	attack func(*trial) error
	tokens bool // the service has a token file
}

const (
	h1 = false // HTTP/1.1
	h2 = true  // HTTP/2 over TLS
)

// rows are all shapes. A bomb has as many fields as 64 KiB can hold, a full head as many
// as the service accepts.
var rows = []row{
	// Heads of 503 responses with Retry-After: the fetch holds them while it waits.
	{name: "header-bomb-http1-unary", gate: shipped, attack: waits(fetchUnary, h1, bombFields)},
	{name: "header-bomb-http1-stream", gate: none, attack: waits(fetchStream, h1, bombFields)},
	{name: "header-bomb-http1-many", gate: shipped, attack: waits(fetchMany, h1, bombFields)},
	{name: "header-bomb-http2-unary", gate: none, attack: waits(fetchUnary, h2, bombFields)},
	{name: "header-bomb-http2-stream", gate: shipped, attack: waits(fetchStream, h2, bombFields)},
	{name: "header-bomb-http2-many", gate: none, attack: waits(fetchMany, h2, bombFields)},
	{name: "full-head-http1-unary", gate: none, attack: waits(fetchUnary, h1, fullHead)},
	{name: "full-head-http1-stream", gate: shipped, attack: waits(fetchStream, h1, fullHead)},
	{name: "full-head-http1-many", gate: none, attack: waits(fetchMany, h1, fullHead)},
	{name: "full-head-http2-unary", gate: shipped, attack: waits(fetchUnary, h2, fullHead)},
	{name: "full-head-http2-stream", gate: none, attack: waits(fetchStream, h2, fullHead)},
	{name: "full-head-http2-many", gate: shipped, attack: waits(fetchMany, h2, fullHead)},

	// Heads that do not end. Over HTTP/2 a bomb is refused before that.
	{name: "head-stops-http1-unary", gate: shipped, attack: stops(fetchUnary, h1, bombFields)},
	{name: "head-stops-http1-stream", gate: none, attack: stops(fetchStream, h1, bombFields)},
	{name: "head-stops-http1-many", gate: shipped, attack: stops(fetchMany, h1, bombFields)},
	{name: "head-stops-http2-unary", gate: none, attack: stops(fetchUnary, h2, fullHead)},
	{name: "head-stops-http2-stream", gate: shipped, attack: stops(fetchStream, h2, fullHead)},
	{name: "head-stops-http2-many", gate: none, attack: stops(fetchMany, h2, fullHead)},

	// Heads that all arrive at the same moment.
	{name: "bombs-at-once-http1", gate: none, attack: atOnce(h1, bombFields)},
	{name: "bombs-at-once-http2", gate: shipped, attack: atOnce(h2, bombFields)},
	{name: "full-heads-at-once-http1", gate: shipped, attack: atOnce(h1, fullHead)},
	{name: "full-heads-at-once-http2", gate: none, attack: atOnce(h2, fullHead)},

	// Connections that all become idle, and then memory that is needed for something else.
	{name: "idle-tls", gate: shipped, attack: leaveIdle},

	// Calls that do not end.
	{name: "unfinished-unary", gate: none, attack: unfinished(unaryMethod)},
	{name: "unfinished-many", gate: shipped, attack: unfinished(manyMethod)},
	{name: "unfinished-health", gate: shipped, attack: unfinished(healthMethod)},
	{name: "cancelled-unary", gate: none, attack: cancelled},
	{name: "revoked-many", gate: shipped, attack: revoked, tokens: true},

	// Answers that are not read.
	{name: "unread-small", gate: shipped, attack: unread{conns: 60, each: callsPerConnection, path: "/s/unread/200:size=30000", unanswered: 16}.attack},
	{name: "unread-large", gate: none, attack: unread{conns: 30, each: 100, path: "/s/unread/200:size=1048576", unanswered: 16}.attack},
	{name: "unread-large-burst", gate: shipped, attack: unread{conns: 2, each: 900, path: "/s/unread/200:size=1048576"}.attack},
	{name: "unread-large-gzip", gate: shipped, attack: unread{conns: 30, each: 100, path: "/s/unread/200:size=1048576", unanswered: 16, gzip: true}.attack},
	{name: "stalled-readers", gate: none, attack: stallReaders},
	{name: "stalled-readers-many", gate: shipped, attack: stallStreams},

	// Bodies of requests, and of responses in decoders.
	{name: "request-bodies-unary", gate: shipped, attack: putUnary},
	{name: "request-bodies-many", gate: none, attack: putMany},
	{name: "decoder-window-zstd", gate: shipped, attack: decodes("zstd")},
	{name: "decoder-window-brotli", gate: none, attack: decodes("br")},

	// Texts of pages.
	{name: "text-lists", attack: texts("lists")},
	{name: "text-attributes", attack: texts("attributes")},
	{name: "text-menus", gate: none, attack: texts("menus")},
	{name: "text-nested", attack: texts("nested")},
	{name: "text-large", gate: shipped, attack: texts("large")},
}
