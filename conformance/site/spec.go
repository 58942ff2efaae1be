package main

import (
	"fmt"
	"html/template"
	"os"
	"regexp"
	"strings"

	"fetchd/internal/rules"
)

// ruleText is a rule with its text in the specification.
type ruleText struct {
	ID, Sentence, Section string
	// Facts are the cells of its row, and Lines the paragraphs and points of its text.
	Facts []fact
	Lines []line
}

type fact struct {
	Name string
	Text template.HTML
}

type line struct {
	Point bool
	Text  template.HTML
}

var (
	specSection = regexp.MustCompile(`^## (\d+)\. (.*?)(?: \(S\d.*\))?$`)
	specRule    = regexp.MustCompile(`^(?:- ([A-Z]\d+)\. |\| ([A-Z]\d+) \| )(.*)$`)
	specPoint   = regexp.MustCompile(`^ +(- )?(.*)$`)
)

// readSpec returns the text of every rule by its number.
func readSpec(file string) (map[string]*ruleText, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*ruleText)
	for _, r := range rules.All {
		all[r.ID] = &ruleText{ID: r.ID, Sentence: r.Sentence}
	}
	var section string
	var heads []string // of a table
	var rule *ruleText // whose text goes on
	for l := range strings.Lines(string(text)) {
		l = strings.TrimRight(l, "\n")
		if m := specSection.FindStringSubmatch(l); m != nil {
			section, rule = m[1]+", "+m[2], nil
		} else if m := specRule.FindStringSubmatch(l); m != nil {
			rule = all[m[1]+m[2]]
			switch {
			case rule == nil: // a departure
			case m[1] != "":
				rule.Section, rule.Lines = section, []line{{Text: inline(all, m[3])}}
			default:
				rule.Section = section
				for i, cell := range cells(l)[1:] {
					rule.Facts = append(rule.Facts, fact{heads[i+1], inline(all, cell)})
				}
				rule = nil
			}
		} else if strings.HasPrefix(l, "| #") {
			heads = cells(l)
		} else if m := specPoint.FindStringSubmatch(l); m != nil && rule != nil {
			if last := &rule.Lines[len(rule.Lines)-1]; m[1] == "" {
				last.Text += " " + inline(all, m[2])
			} else {
				rule.Lines = append(rule.Lines, line{true, inline(all, m[2])})
			}
		} else {
			rule = nil
		}
	}
	for _, r := range rules.All {
		if all[r.ID].Section == "" {
			return nil, fmt.Errorf("%s: rule %s is missing", file, r.ID)
		}
	}
	return all, nil
}

func cells(row string) []string {
	all := strings.Split(strings.Trim(row, "| "), " | ")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

var (
	markLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	markBold = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	markItal = regexp.MustCompile(`\*([^*]+)\*`)
	markRule = regexp.MustCompile(`\b[A-Z]\d+\b`)
)

// inline turns the Markdown within a paragraph of the specification into HTML. Links to other documents become text, and
// numbers of rules become links.
func inline(all map[string]*ruleText, text string) template.HTML {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			out.WriteString("<code>" + part + "</code>")
			continue
		}
		part = markLink.ReplaceAllString(part, "$1")
		part = markBold.ReplaceAllString(part, "<strong>$1</strong>")
		part = markItal.ReplaceAllString(part, "<em>$1</em>")
		out.WriteString(markRule.ReplaceAllStringFunc(part, func(id string) string {
			if all[id] == nil {
				return id
			}
			return `<a href="#` + id + `">` + id + `</a>`
		}))
	}
	return template.HTML(out.String())
}
