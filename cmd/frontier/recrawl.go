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

// recrawl is the flag that has URLs fetched again.
type recrawl struct {
	Rules []string `name:"recrawl" sep:"none" placeholder:"[NAME=]DURATION" group:"Fetches:" help:"Fetch each URL again after about this time, such as 7d or 12h, and run on when no URL is left. NAME= gives some URLs another time: those of a host (news.example.org=6h), of all hosts below a domain (*.example.org=1d), or those that match a regular expression with a slash (/archive/=8w); 0s means never. Repeatable: the first name that matches counts. Default: never."`
}

// config returns what the flag says.
func (c *recrawl) config() (r frontier.Recrawl, _ error) {
	for _, text := range c.Rules {
		name, every, err := recrawlRule(text)
		if err != nil {
			return r, err
		}
		switch {
		case name == "" && r.Every > 0:
			return r, cli.UsageError(recrawlFlag, fmt.Sprintf("%.80q is a second time for all URLs: give one, and others with a name, such as example.org=7d", text))
		case name == "":
			r.Every = every
			continue
		}
		rule, err := ruleOf(name)
		if err != nil {
			return r, err
		}
		rule.Every = every
		r.Rules = append(r.Rules, rule)
	}
	if len(r.Rules) > frontier.MaxRecrawlRules {
		return r, cli.UsageError(recrawlFlag, fmt.Sprintf("there are %d names: give at most %d", len(r.Rules), frontier.MaxRecrawlRules))
	}
	return r, nil
}

const (
	recrawlFlag = "--recrawl"
	// minRecrawl is the minimum of all times but 0, which means never.
	minRecrawl = time.Second
)

// ruleOf returns the rule of a name: a pattern if it has a slash, which a host has not.
func ruleOf(name string) (frontier.RecrawlRule, error) {
	if strings.Contains(name, "/") {
		if _, err := scope.New(scope.Config{Include: []string{name}}); err != nil {
			return frontier.RecrawlRule{}, cli.UsageError(recrawlFlag, fmt.Sprint(err))
		}
		return frontier.RecrawlRule{Pattern: regexp.MustCompile(name)}, nil
	}
	name, below := strings.CutPrefix(name, "*.")
	host, err := hostKey(name)
	if err != nil {
		return frontier.RecrawlRule{}, cli.UsageError(recrawlFlag, fmt.Sprintf("%.80q is neither a host such as example.org or *.example.org, nor a pattern, which has a slash", name))
	}
	if below {
		host = "*." + host
	}
	return frontier.RecrawlRule{Host: host}, nil
}

// recrawlRule splits "DURATION" and "NAME=DURATION".
func recrawlRule(text string) (name string, every time.Duration, err error) {
	at := strings.LastIndexByte(text, '=')
	every, err = cli.ParseDuration(text[at+1:])
	if err != nil || every < 0 || every > 0 && every < minRecrawl {
		return "", 0, cli.UsageError(recrawlFlag, fmt.Sprintf("%.40q is not a duration such as 7d or 12h, of at least %v, or 0s", text[at+1:], minRecrawl))
	}
	if at == 0 {
		return "", 0, cli.UsageError(recrawlFlag, fmt.Sprintf("%.80q has no name: give one such as example.org=7d", text))
	}
	return text[:max(at, 0)], every, nil
}
