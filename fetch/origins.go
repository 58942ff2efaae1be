package fetch

import (
	"maps"
	"reflect"
)

// SetOrigins replaces the TLS settings of single origins; see [Config].Origins. Connections
// that were made with other settings take no new request, and are closed when their
// requests have ended. It is safe to call while fetches are in flight.
func (c *Client) SetOrigins(origins map[string]OriginTLS) {
	old := c.pool.Origins()
	next := make(map[string]*OriginTLS, len(origins))
	for address, settings := range maps.All(origins) {
		next[address] = &settings
		if same := old[address]; same != nil && reflect.DeepEqual(*same, settings) {
			next[address] = same // which keeps its connections
		}
	}
	c.pool.SetOrigins(next)
}
