package frontier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
)

// TestDownloadProfile checks S4: which statuses are retried, the waits of 1, 2 and 4 s with up to 500 ms
// of jitter each, and that the row has retry_count and last_error in the end.
func TestDownloadProfile(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.Download, r.config.MaxAttempts, r.config.Policy.MaxURLRetries = true, 0, 0
	rows := []struct {
		name, steps string
		status      store.Status
		http        int
		retries     int
		lastError   string        // its start
		wait        time.Duration // without jitter
	}{
		{"success", "200", store.Fetched, 200, 0, "", 0},
		{"503, then success", "503/200", store.Fetched, 200, 1, "", time.Second},
		{"408, then success", "408/200", store.Fetched, 200, 1, "", time.Second},
		{"429, then success", "429/200", store.Fetched, 200, 1, "", time.Second},
		{"a connection that breaks, then success", "reset/200", store.Fetched, 200, 1, "", time.Second},
		{"500, 502 and 504, then success", "500/502/504/200", store.Fetched, 200, 3, "", 7 * time.Second},
		{"503 each time", "503", store.Dead, 503, 3, "http_server_error: ", 7 * time.Second},
		{"400", "400", store.Dead, 400, 0, "http_client_error: ", 0},
		{"401", "401", store.Dead, 401, 0, "auth_required: ", 0},
		{"403", "403", store.Dead, 403, 0, "forbidden: ", 0},
		{"404", "404", store.Dead, 404, 0, "http_client_error: ", 0},
		{"410", "410", store.Dead, 410, 0, "http_client_error: ", 0},
		{"451", "451", store.Dead, 451, 0, "http_client_error: ", 0},
	}
	urls := make([]string, len(rows))
	for i, row := range rows {
		urls[i] = r.site.URL(fmt.Sprintf("h%d", i), fmt.Sprintf("/s/profile%d/%s", i, row.steps))
	}
	r.add(urls...)
	r.crawl()
	waits := make(map[string]time.Duration)
	for f, err := range r.store.Fetches(t.Context()) {
		must(t, err)
		waits[f.URL] = f.Wait
	}
	for i, row := range rows {
		got := r.row(urls[i])
		if got.Status != row.status || got.HTTPStatus != row.http || got.RetryCount != row.retries {
			t.Errorf("%s: %+v, want %s, %d and %d retries", row.name, got, row.status, row.http, row.retries)
		}
		if !strings.HasPrefix(got.LastError, row.lastError) || (got.LastError == "") != (row.lastError == "") {
			t.Errorf("%s: last error %q, want %q", row.name, got.LastError, row.lastError)
		}
		longest := row.wait + time.Duration(row.retries)*500*time.Millisecond
		if w := waits[urls[i]]; w < row.wait || w > longest {
			t.Errorf("%s: waits of %v, want %v to %v", row.name, w, row.wait, longest)
		}
		if n := r.count(fmt.Sprintf("h%d", i), urls[i][strings.Index(urls[i], "/s/"):]); n != row.retries+1 {
			t.Errorf("%s: %d requests, want %d", row.name, n, row.retries+1)
		}
	}
}
