package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/scope"
	"fetchd/internal/cli"
)

// recrawl are the flags that have URLs fetched again.
type recrawl struct {
	Every time.Duration `name:"recrawl" placeholder:"DURATION" group:"Recrawl:" help:"Fetch each URL again after about this time, such as 7d or 12h, and run on when no URL is left. Default: never."`
	Hosts []string      `name:"recrawl-host" sep:"none" placeholder:"HOST=DURATION" group:"Recrawl:" help:"Another time for this host, or for all hosts below a domain (*.example.org=1d); 0s means never. Repeatable: the first that matches counts."`
	URLs  []string      `name:"recrawl-url" sep:"none" placeholder:"PATTERN=DURATION" group:"Recrawl:" help:"Another time for URLs that match this regular expression (RE2). These count before --recrawl-host. Repeatable."`
	Min   time.Duration `name:"recrawl-min" placeholder:"DURATION" group:"Recrawl:" help:"Minimum time for pages that change often. Default: a quarter of the time that is set."`
	Max   time.Duration `name:"recrawl-max" placeholder:"DURATION" group:"Recrawl:" help:"Maximum time for pages that do not change. Default: eight times the time that is set."`
}

// config returns what the flags say.
func (c *recrawl) config() (frontier.Recrawl, error) {
	r := frontier.Recrawl{Every: c.Every, Min: c.Min, Max: c.Max}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--recrawl", c.Every}, {"--recrawl-min", c.Min}, {"--recrawl-max", c.Max}} {
		if d.value < 0 || d.value > 0 && d.value < minRecrawl {
			return r, cli.UsageError(d.flag, fmt.Sprintf("%v is below %v: give a duration such as 7d", d.value, minRecrawl))
		}
	}
	for _, text := range c.URLs {
		pattern, every, err := recrawlRule("--recrawl-url", text)
		if err != nil {
			return r, err
		}
		if _, err := scope.New(scope.Config{Include: []string{pattern}}); err != nil {
			return r, cli.UsageError("--recrawl-url", fmt.Sprint(err))
		}
		r.Rules = append(r.Rules, frontier.RecrawlRule{Pattern: regexp.MustCompile(pattern), Every: every})
	}
	for _, text := range c.Hosts {
		name, every, err := recrawlRule("--recrawl-host", text)
		if err != nil {
			return r, err
		}
		name, below := strings.CutPrefix(name, "*.")
		host, err := hostKey(name)
		if err != nil {
			return r, cli.UsageError("--recrawl-host", fmt.Sprintf("%.80q is not a host: give one such as example.org or *.example.org", name))
		}
		if below {
			host = "*." + host
		}
		r.Rules = append(r.Rules, frontier.RecrawlRule{Host: host, Every: every})
	}
	return r, c.checkRules(r)
}

// minRecrawl is the minimum of all times but 0, which means never.
const minRecrawl = time.Second

func (c *recrawl) checkRules(r frontier.Recrawl) error {
	switch {
	case !r.On() && (c.Min > 0 || c.Max > 0):
		return cli.UsageError("--recrawl-min, --recrawl-max", "no URL is fetched again: add --recrawl, --recrawl-host or --recrawl-url")
	case c.Max > 0 && c.Min > c.Max:
		return cli.UsageError("--recrawl-min", fmt.Sprintf("%v is longer than --recrawl-max %v", c.Min, c.Max))
	case len(r.Rules) > frontier.MaxRecrawlRules:
		return cli.UsageError("--recrawl-host", fmt.Sprintf("there are %d rules with --recrawl-url: give at most %d", len(r.Rules), frontier.MaxRecrawlRules))
	}
	return nil
}

// recrawlRule splits "PATTERN=DURATION".
func recrawlRule(flag, text string) (pattern string, every time.Duration, err error) {
	at := strings.LastIndexByte(text, '=')
	if at <= 0 {
		return "", 0, cli.UsageError(flag, fmt.Sprintf("%.80q has no duration: give one such as example.org=7d", text))
	}
	every, err = cli.ParseDuration(text[at+1:])
	if err != nil || every < 0 || every > 0 && every < minRecrawl {
		return "", 0, cli.UsageError(flag, fmt.Sprintf("%.40q is not a duration such as 7d or 12h, of at least %v, or 0s", text[at+1:], minRecrawl))
	}
	return text[:at], every, nil
}
