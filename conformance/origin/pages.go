package origin

import (
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

const grammarHead = `/s/KEY/STEP/STEP/...   request n for KEY gets STEP n; the last one repeats
/cycle/KEY/STEP/STEP/...        the same, but after the last STEP the first follows, and
                                each script has its own counter: for examples that run again
/r/KEY/STATUS/N/STEP/...        N redirects, then /s/KEY/STEP/...
/loop/KEY/STATUS                redirects to itself
/loop2/KEY/STATUS               redirects between two URLs
/cross/KEY/STATUS/TARGET/STEP/...
                                redirects to /s/KEY/STEP/... on the listener TARGET;
                                TARGET may be NAME@HOST to use another host name for it
GET /                           this page
GET /_log?key=KEY               the log in JSON, of KEY or of all; DELETE /_log clears it
GET /_connections               connections accepted, by listener, in JSON
GET /_ca.pem /_client.pem       the authority; the client certificate and key for mtls

KEY is any text, chosen by the client. Method and query have no effect. The
redirect helpers are logged under KEY but do not advance its script. Their
STATUS may have parameters too.

STEP is NAME or NAME:PARAM=VALUE,PARAM=VALUE. Values are percent-decoded once:
write "," as %2C, "/" as %2F, "?" as %3F, "%" as %25. A PARAM that adds a field
may be given more than once, with digits at its end if you like: header1=, header2=.
A URL that is not in the grammar is answered with 400, a fault that the protocol
cannot express with 501. Both answers have a field Origin-Error.
`

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
