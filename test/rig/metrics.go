package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fetchd/test/wait"
)

var scraper = &http.Transport{MaxIdleConnsPerHost: 2}

// metricsAge is how old the page of the metrics may be.
const metricsAge = time.Second

// FreshMetrics is Metrics for values that are no older than the call. It waits for a second.
func FreshMetrics(ctx context.Context, address string) (map[string]float64, error) {
	wait.For(ctx, metricsAge)
	return Metrics(ctx, address)
}

// Metrics reads the metrics of the service whose HTTP API is at address, as they were at most a second
// ago. A metric is found by its series, such as a{b="c"}, and the sum of its series by its name.
func Metrics(ctx context.Context, address string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := scraper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return parseMetrics(resp.Body)
}

// parseMetrics reads Prometheus's text format.
func parseMetrics(r io.Reader) (map[string]float64, error) {
	values := make(map[string]float64)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		series := line[:space]
		name, _, labelled := strings.Cut(series, "{")
		values[name] += value
		if labelled {
			values[series] = value
		}
	}
	return values, lines.Err()
}
