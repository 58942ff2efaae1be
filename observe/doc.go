// Package observe makes figures and traces of fetches: metrics for Prometheus,
// spans for OpenTelemetry.
//
// It is told of fetches as a [fetch.Observer] and changes nothing about them. No
// name of a host, no path and nothing else that an origin or a caller chose
// becomes a label: the labels are closed sets. A span tells of a URL what a log
// does ([fetch.RedactURL]): no query, no userinfo.
//
// The order of calls: [New]; then what the server does, [Observer.Serving],
// [Observer.Start] at the begin of each fetch and [Observer.Refused] for each
// call that it turns away; [Observer.Shutdown] after the server's. [Metrics]
// works alone, too.
package observe
