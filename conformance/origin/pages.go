package origin

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// page answers a request for information about the origin itself.
type page func(r *http.Request) (reply, error)

// page returns the page at path, or nil.
func (o *Origin) page(path string) page {
	switch path {
	case "/":
		return func(*http.Request) (reply, error) { return textReply(textPlain, o.Index()), nil }
	case "/_log":
		return o.logPage
	case "/_connections":
		return func(*http.Request) (reply, error) { return jsonReply(o.tracker.allCounts()) }
	case "/_ca.pem":
		return func(*http.Request) (reply, error) { return textReply(pemType, string(o.CAPEM())), nil }
	case "/_client.pem":
		return o.clientPage
	}
	return nil
}

const pemType = "application/x-pem-file"

func (o *Origin) logPage(r *http.Request) (reply, error) {
	if r.Method == http.MethodDelete {
		o.Reset()
		return reply{status: http.StatusNoContent}, nil
	}
	requests := o.AllRequests()
	if query := r.URL.Query(); query.Has("key") {
		requests = o.Requests(query.Get("key"))
	}
	if requests == nil {
		requests = []Request{} // [] in JSON, not null
	}
	return jsonReply(requests)
}

func (o *Origin) clientPage(*http.Request) (reply, error) {
	a, err := o.authority()
	if err != nil {
		return reply{}, err
	}
	b, err := a.clientPEM()
	return textReply(pemType, string(b)), err
}

func textReply(kind, text string) reply {
	return reply{status: http.StatusOK, fields: []Field{{"Content-Type", kind}}, body: []byte(text)}
}

func jsonReply(v any) (reply, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return textReply("application/json", string(b)+"\n"), err
}

// grammarHead is the grammar without the steps.
//
//go:embed grammar.txt
var grammarHead string

// Grammar returns the URL grammar as text, with every step and every parameter.
func Grammar() string {
	var b strings.Builder
	b.WriteString(grammarHead)
	for _, k := range stepKinds {
		fmt.Fprintf(&b, "\n%s\n    %s\n", k.name, k.doc)
		if k.name == "close-idle" {
			b.WriteString("    parameters as for STATUS\n")
			continue
		}
		step := newStep()
		for _, p := range k.params(&step) {
			usage := p.name
			if p.syntax != "" {
				usage += "=" + p.syntax
			}
			fmt.Fprintf(&b, "    %-50s %s\n", usage, p.doc)
		}
	}
	return b.String()
}

// Index returns the text of GET /: the listeners with their addresses, and the
// grammar.
func (o *Origin) Index() string {
	return "An HTTP origin that commits any fault on request.\n\n" + o.Summary() + "\nGrammar\n\n" + Grammar()
}

// Summary returns the listeners with their addresses.
func (o *Origin) Summary() string {
	var b strings.Builder
	b.WriteString("Listeners\n")
	for _, k := range listenerKinds() {
		fmt.Fprintf(&b, "    %-16s %-34s %s\n", k.name, o.URL(k.name, ""), k.doc)
	}
	fmt.Fprintf(&b, "    %-16s %-34s %s\n", refusedName, o.URL(refusedName, ""), "nothing listens on this port")
	return b.String()
}
