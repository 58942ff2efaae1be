package origin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strings"
)

// page is an answer of the origin about itself.
type page func(r *http.Request) (reply, error)

func (o *Origin) page(path string) (page, bool) {
	pages := map[string]page{
		"/":             o.indexPage,
		"/_log":         o.logPage,
		"/_connections": o.connectionsPage,
		"/_ca.pem":      o.caPage,
		"/_client.pem":  o.clientPage,
	}
	p, ok := pages[path]
	return p, ok
}

func (x *exchange) servePage(p page) error {
	r, err := p(x.req)
	if err != nil {
		return x.refuse(http.StatusInternalServerError, err)
	}
	return x.reply(r)
}

func (o *Origin) indexPage(*http.Request) (reply, error) {
	return textReply(textPlain, o.Index()), nil
}

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
		requests = []Request{} // a list in JSON too
	}
	return jsonReply(requests)
}

func (o *Origin) connectionsPage(*http.Request) (reply, error) {
	return jsonReply(o.tracker.allCounts())
}

func (o *Origin) caPage(*http.Request) (reply, error) {
	return textReply("application/x-pem-file", string(o.CAPEM())), nil
}

func (o *Origin) clientPage(*http.Request) (reply, error) {
	a, err := o.authority()
	if err != nil {
		return reply{}, err
	}
	b, err := a.clientPEM()
	return textReply("application/x-pem-file", string(b)), err
}

func textReply(kind, text string) reply {
	return reply{status: http.StatusOK, fields: []Field{{"Content-Type", kind}}, body: []byte(text)}
}

func jsonReply(v any) (reply, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return textReply("application/json", string(b)+"\n"), err
}

// echo returns the request as logged, in JSON.
func (x *exchange) echo() ([]byte, error) {
	request := x.entry.snapshot()
	seen := struct {
		Method   string  `json:"method"`
		URL      string  `json:"url"`
		Host     string  `json:"host"`
		Protocol string  `json:"protocol"`
		Fields   []Field `json:"headers"`
		Bytes    int64   `json:"body_bytes"`
		SHA256   string  `json:"body_sha256"`
	}{
		request.Method, x.req.RequestURI, request.Host, request.Protocol,
		request.Fields, request.BodyBytes, request.BodySHA256,
	}
	b, err := json.MarshalIndent(seen, "", "  ")
	return append(b, '\n'), err
}

// router knows how /cross names other listeners.
func (o *Origin) router() router {
	return router{absolute: func(target, path string) (string, error) {
		name, host, otherHost := strings.Cut(target, "@")
		if _, ok := kindOf(name); !ok && name != refusedName {
			return "", fmt.Errorf("%w: no listener %q", errGrammar, name)
		}
		if !otherHost {
			return o.URL(name, path), nil
		}
		u, err := url.Parse(o.URL(name, ""))
		if err != nil {
			return "", errors.Join(errGrammar, err)
		}
		if port := u.Port(); port != "" {
			host += ":" + port
		}
		return u.Scheme + "://" + host + path, nil
	}}
}

// sortedFields lists a header whose order is lost.
func sortedFields(h http.Header) []Field {
	fields := make([]Field, 0, len(h))
	for name, values := range h {
		for _, value := range values {
			fields = append(fields, Field{name, value})
		}
	}
	sort.SliceStable(fields, func(i, j int) bool { return fields[i].Name < fields[j].Name })
	return fields
}

const grammarHead = `/s/KEY/STEP/STEP/...   request n for KEY gets STEP n; the last repeats
/cycle/KEY/STEP/STEP/...        the same, but the first STEP follows the last, and each
                                script counts alone: for examples that are run again
/r/KEY/STATUS/N/STEP/...        N redirects, then /s/KEY/STEP/...
/loop/KEY/STATUS                redirects to itself
/loop2/KEY/STATUS               redirects between two URLs
/cross/KEY/STATUS/TARGET/STEP/...
                                redirects to /s/KEY/STEP/... on the listener TARGET,
                                which may be NAME@HOST to name its host otherwise
GET /                           this page
GET /_log?key=KEY               the log in JSON, of KEY or of all; DELETE /_log clears it
GET /_connections               connections accepted, by listener, in JSON
GET /_ca.pem /_client.pem       the authority; the client certificate and key for mtls

KEY is any text, chosen by the client. Methods and queries do not matter. The
helpers are logged under KEY but take no step from it. STATUS may carry
parameters there too.

STEP is NAME or NAME:PARAM=VALUE,PARAM=VALUE. Values are percent-decoded once:
write "," as %2C, "/" as %2F, "?" as %3F, "%" as %25. A PARAM that adds a field
may be given more than once, also with a number: header1=, header2=.
A URL that is not in the grammar gets 400, a fault that the protocol cannot have
501, both with a field Origin-Error.
`

// Grammar returns the URL grammar: every step and every parameter.
func Grammar() string {
	var b strings.Builder
	b.WriteString(grammarHead)
	for _, k := range stepKinds {
		fmt.Fprintf(&b, "\n%s\n    %s\n", k.name, k.doc)
		if k.name == "close-idle" {
			b.WriteString("    parameters as for STATUS\n")
			continue
		}
		for _, p := range k.params {
			fmt.Fprintf(&b, "    %-50s %s\n", p.usage(), p.doc)
		}
	}
	return b.String()
}

func (p param) usage() string {
	if p.syntax == "" {
		return p.name
	}
	return p.name + "=" + p.syntax
}

// Index returns the listeners with their addresses, and the grammar: what
// GET / answers.
func (o *Origin) Index() string {
	var b strings.Builder
	b.WriteString("An HTTP origin that commits any fault on request.\n\nListeners\n")
	for _, k := range listenerKinds() {
		fmt.Fprintf(&b, "    %-16s %-34s %s\n", k.name, o.URL(k.name, ""), k.doc)
	}
	fmt.Fprintf(&b, "    %-16s %-34s %s\n", refusedName, o.URL(refusedName, ""), "nothing listens there")
	b.WriteString("\nGrammar\n\n")
	b.WriteString(Grammar())
	return b.String()
}
