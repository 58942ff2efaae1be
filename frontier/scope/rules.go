package scope

import (
	"encoding/json"
	"fmt"
)

// Rules say which URLs a worker adds from a sitemap and from the sitemaps that it lists. They are in the
// metadata of the sitemap, so they apply whichever worker reads it.
type Rules struct {
	Scope       By       `json:"scope"`
	Places      []string `json:"places,omitempty"` // as in [Config], like Include and Exclude
	Include     []string `json:"include,omitempty"`
	Exclude     []string `json:"exclude,omitempty"`
	MaxURLs     int64    `json:"max_urls,omitempty"` // in the database; zero means no limit
	MaxHostURLs int64    `json:"max_urls_per_host,omitempty"`
}

// RulesField is the field of metadata that contains rules.
const RulesField = "frontier"

type metadata struct {
	Rules *Rules `json:"frontier,omitempty"` // RulesField
}

// Metadata returns the metadata of a sitemap with these rules.
func (r *Rules) Metadata() (string, error) {
	text, err := json.Marshal(metadata{r})
	return string(text), err
}

// ReadRules returns the rules in the metadata of a sitemap, which is a JSON object or empty. It
// returns nil if there are none.
func ReadRules(text string) (*Rules, error) {
	if text == "" {
		return nil, nil
	}
	var m metadata
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("the rules in its metadata are not valid: %w", err)
	}
	return m.Rules, nil
}

// NewScope returns the scope of the URLs to add.
func (r *Rules) NewScope() (*Scope, error) {
	return New(Config{By: r.Scope, Places: r.Places, Include: r.Include, Exclude: r.Exclude})
}
